"""Execution of attempts: in the event loop, in a thread or in a child process."""
