"""A Django project that starts jobs in its own transactions, and a worker that uses its models."""
