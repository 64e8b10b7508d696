"""Properties are tried on fewer examples than usual, and never fail for being slow on a busy machine."""

from hypothesis import settings

settings.register_profile("rota", deadline=None, max_examples=50)
settings.load_profile("rota")
