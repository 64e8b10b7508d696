"""Loops that run while a program is up, and the code they share."""
