"""Deletion of old rows, by retention rules and by age."""
