"""Drawings of graphs: SVG, Mermaid and text for terminals. Pure functions from names and labels to text."""
