"""A PostgreSQL proxy for tests that breaks connections on purpose."""
