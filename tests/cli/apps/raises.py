"""A module with a bug of its own."""

raise ZeroDivisionError("a bug of the module's own")
