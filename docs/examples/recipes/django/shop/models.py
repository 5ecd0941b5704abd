"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    order_id = models.TextField(primary_key=True)


class Parcel(models.Model):
    number = models.BigAutoField(primary_key=True)
    order_id = models.TextField()
