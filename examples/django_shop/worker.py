# [worker]
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
django.setup()

from .tasks import app  # noqa: E402 - models can be imported only after setup()

__all__ = ["app"]
# [/worker]
