"""Django: a view writes a row and says a fact inside `atomic()`; a handler simply uses the ORM. No event loop of yours."""

import os
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, JsonResponse
from django.urls import path

from posthouse import App, Event, Payload, Service

URL = os.environ["SHOP_DATABASE"]  # postgresql://shop@db/shop
parts = urlsplit(URL)
database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": parts.path.removeprefix("/"),
    "USER": parts.username,
    "PASSWORD": parts.password,
    "HOST": parts.hostname,
    "PORT": parts.port,
}
if not settings.configured:  # in a project of its own: settings.py, models.py, views.py and events.py
    settings.configure(DATABASES={"default": database}, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
    django.setup()

shop = Service("shop")
App(shop, store=URL, broker=URL)  # or any other that every host reaches


class Order(models.Model):
    order_id = models.TextField(primary_key=True)

    class Meta:
        app_label = "shop"


class Parcel(models.Model):
    order_id = models.TextField(primary_key=True)

    class Meta:
        app_label = "shop"


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


def place(request: HttpRequest, order_id: str) -> JsonResponse:
    with transaction.atomic():
        Order.objects.create(order_id=order_id)
        shop.outbox.add_now(connection, OrderPlaced(order_id=order_id), tenant="t1")
    return JsonResponse({"placed": order_id})


@shop.on(OrderPlaced)
def pack(event: Event[OrderPlaced], connection: BaseDatabaseWrapper) -> None:
    Parcel.objects.create(order_id=event.data.order_id)


urlpatterns = [path("orders/<order_id>", place)]

if __name__ == "__main__":
    from django.test import Client

    with connection.schema_editor() as editor:  # in a project: manage.py migrate
        editor.create_model(Order)
        editor.create_model(Parcel)
    print(Client().post("/orders/o1").json())
