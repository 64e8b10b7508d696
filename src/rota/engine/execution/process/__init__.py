"""Isolated tasks: child processes, the messages to them, and the program they run."""
