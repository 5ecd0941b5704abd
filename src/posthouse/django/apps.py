"""What Django is told."""

from django.apps import AppConfig


class PosthouseConfig(AppConfig):
    """`posthouse.django`, called `posthouse` by `migrate`."""

    name = "posthouse.django"
    label = "posthouse"
    verbose_name = "Posthouse"
