"""Places: where a service keeps its facts and through what they travel, in words fit for a log."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from posthouse.service import Service


def store_of(service: Service) -> str:
    """The store's URL without its password, or the name of the class when the service was given an object."""
    given = service._store
    if given is None:
        given = os.environ.get("POSTHOUSE_STORE") or f"sqlite:///{service.name}.db"
    return without_password(given) if isinstance(given, str) else type(given).__name__


def broker_of(service: Service) -> str:
    """The broker's URL without its password, or the name on its capability sheet."""
    given = service._broker
    if given is None:
        given = os.environ.get("POSTHOUSE_BROKER") or "embedded:///posthouse-log.db"
    return without_password(given) if isinstance(given, str) else given.sheet.name


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":…@")).geturl()
