"""Module that imports a module which is not installed."""

import not_installed_anywhere  # type: ignore[import-not-found]  # noqa: F401
