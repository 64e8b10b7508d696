"""The command `rota show`: one module for each kind of thing that it shows."""
