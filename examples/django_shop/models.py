from django.db import models


class Order(models.Model):  # type: ignore[misc]
    mail = models.EmailField()
    receipt_sent = models.BooleanField(default=False)
