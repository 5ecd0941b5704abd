"""Where requests go."""

from django.urls import path
from shop.views import place

urlpatterns = [path("orders/<order_id>", place)]
