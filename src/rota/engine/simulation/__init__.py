"""Running a durable function without a database: for tests and for check-deploy."""
