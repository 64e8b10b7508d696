"""The loops: what runs while a program is up."""
