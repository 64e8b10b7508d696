"""Queries that only read: for commands, the HTTP API, pages and diagnosis."""
