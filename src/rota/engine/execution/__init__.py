"""Execution of one attempt: in the event loop, in a thread or in a process of its own."""
