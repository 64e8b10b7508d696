# [views]
from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from .models import Order
from .tasks import app, send_receipt


def buy(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(mail=request.GET["mail"])
        # In this transaction: the order and its job are both committed, or neither.
        run = send_receipt.sync.options(on=connection).start(order=order.pk)
    return JsonResponse({"order": order.pk, "run": str(run.id)}, status=202)


def receipt(request: HttpRequest, run: int) -> JsonResponse:
    return JsonResponse({"state": app.run(run).sync.status()})


# [/views]
