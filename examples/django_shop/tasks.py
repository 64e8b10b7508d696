"""Background tasks. The views import and start them; the worker imports and runs them."""

# [tasks]
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

from rota import Rota

app = Rota()  # uses ROTA_DATABASE_URL, the same database as Django

P = ParamSpec("P")
R = TypeVar("R")


def with_models(fn: Callable[P, R]) -> Callable[P, R]:
    """Close old connections around each job, as Django does around each request."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return fn(*args, **kwargs)
        finally:
            close_old_connections()

    return call


@app.task(queue="mail")
@with_models
def send_receipt(order: int) -> str:
    from .models import Order

    bought = Order.objects.get(pk=order)
    # … send a mail to bought.mail …
    bought.receipt_sent = True
    bought.save()
    return str(bought.mail)


# [/tasks]
