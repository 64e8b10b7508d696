"""Settings of `django-admin startproject`, reduced to those needed here."""

import os
from urllib.parse import parse_qsl, unquote, urlsplit

_url = urlsplit(os.environ.get("ROTA_DATABASE_URL", "postgresql:///shop"))
_more = dict(parse_qsl(_url.query))

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(_url.path.lstrip("/")),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname or _more.get("host", ""),
        "PORT": str(_url.port or _more.get("port", "")),
        "CONN_MAX_AGE": 60,
    }
}
INSTALLED_APPS = ["examples.django_shop"]
ROOT_URLCONF = "examples.django_shop.urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
