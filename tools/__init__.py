"""Programs for contributors: checks, generated pages, golden files, locking of dependencies."""
