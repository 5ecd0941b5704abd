"""Django for the tests: set up once per process, and pointed at the database of each test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import connections

if not settings.configured:
    settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.postgresql"},
            "elsewhere": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        INSTALLED_APPS=[],
        USE_TZ=True,
    )
    django.setup()


@contextlib.contextmanager
def allowed_on_a_loop() -> Iterator[None]:
    """Tell Django that it is meant to be used where a loop runs."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        yield
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@contextlib.contextmanager
def django_on(url: str) -> Iterator[Any]:
    """The default connection of this thread, on that database."""
    parts = urlsplit(url)
    connection = connections["default"]
    _close(connection)
    settings_of_it = connections.settings["default"]
    settings_of_it.update(
        NAME=unquote(parts.path.removeprefix("/")),
        USER=unquote(parts.username or ""),
        PASSWORD=unquote(parts.password or ""),
        HOST=parts.hostname,
        PORT=str(parts.port or ""),
    )
    connection.settings_dict = settings_of_it
    try:
        yield connection
    finally:
        _close(connection)


@contextlib.contextmanager
def django_on_sqlite(path: Path) -> Iterator[Any]:
    """Django's other connection of this thread, on that file."""
    connection = connections["elsewhere"]
    _close(connection)
    connection.settings_dict["NAME"] = str(path)
    try:
        yield connection
    finally:
        _close(connection)
        connection.settings_dict["NAME"] = ":memory:"


def _close(connection: Any) -> None:
    if connection.connection is not None:  # Django refuses to be asked on an event loop, even where nothing is open
        connection.close()
