"""Values and pure functions, without access to a database or a clock."""
