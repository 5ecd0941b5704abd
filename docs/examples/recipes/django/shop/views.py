"""What the shop answers."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from shop.events import OrderPlaced, shop
from shop.models import Order


def place(request: HttpRequest, order_id: str) -> JsonResponse:
    with transaction.atomic():
        Order.objects.create(order_id=order_id)
        shop.outbox.add_now(connection, OrderPlaced(order_id=order_id), tenant="t1")
    return JsonResponse({"placed": order_id})
