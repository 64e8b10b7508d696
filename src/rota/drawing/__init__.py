"""Graphs as pictures: SVG, Mermaid, and what a terminal needs. Pure: names and labels in, text out."""
