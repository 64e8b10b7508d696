"""The coordination toolkit: what instances agree on, with or without jobs."""
