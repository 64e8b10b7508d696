"""A day's sales: fetched, cleaned file by file, left to settle, approved by a person, published."""
