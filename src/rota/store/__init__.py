"""SQL: the only place that knows tables. Operations are `Query` values; `Database` runs them."""
