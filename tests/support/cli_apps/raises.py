"""Module that raises on import."""

raise ZeroDivisionError("a bug of the module's own")
