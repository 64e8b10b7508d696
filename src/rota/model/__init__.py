"""Values and arithmetic: nothing here knows a database or a clock."""
