"""SQL layer: the only package that accesses tables. Operations are `Query` values; `Database` runs them."""
