"""Command `rota show`, with one module for each kind of object."""
