"""What the shop says, and what it does about it."""

from django.db.backends.base.base import BaseDatabaseWrapper

from posthouse import App, Event, Payload, Service
from shop.models import Parcel

shop = Service("shop")
App(shop, store="django://default", broker="django://default")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced)
def pack(event: Event[OrderPlaced], connection: BaseDatabaseWrapper) -> None:
    Parcel.objects.create(order_id=event.data.order_id)
