"""Read-only queries for commands, the HTTP API, pages and diagnosis."""
