"""Texts and tables shared by several commands."""
