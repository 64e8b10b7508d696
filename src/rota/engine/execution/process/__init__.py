"""Isolated tasks: child processes, the messages between them and the worker, and the child's program."""
