"""Notifications between processes: sending, listening, and waiting for results."""
