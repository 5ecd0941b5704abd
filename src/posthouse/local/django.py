"""Django's databases: `django://default` stands for the one of that name in DATABASES, as the settings say when it is opened. A test
runner makes another database and puts its name there."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.local.url import split

PASSED_ON = (
    "host", "options", "passfile", "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert",
    "target_session_attrs",
)  # fmt: skip
"""Of the OPTIONS in DATABASES, what says whereto one connects; the others are Django's own."""


def database_of(parts: SplitResult) -> SplitResult:
    """The PostgreSQL URL that `django://alias?…` stands for, with what follows its `?`."""
    wrapper = _connection(parts.netloc)
    if wrapper.vendor != "postgresql":
        raise ConfigurationError(
            f"django://{parts.netloc} is on {wrapper.vendor}: only PostgreSQL can be named so; give a URL of its own"
        )
    settings = wrapper.settings_dict
    said = {name: str(value) for name, value in settings.get("OPTIONS", {}).items() if name in PASSED_ON}
    host = str(settings.get("HOST") or "")
    if host.startswith("/"):  # the folder of a socket
        said["host"], host = host, ""
    user, password = (quote(str(settings.get(name) or ""), safe="") for name in ("USER", "PASSWORD"))
    who = f"{user}{':' if password else ''}{password}@" if user else ""
    port = f":{settings['PORT']}" if settings.get("PORT") and host else ""
    if settings.get("PORT") and not host:
        said["port"] = str(settings["PORT"])
    query = urlencode(said | dict(parse_qsl(parts.query, keep_blank_values=True)))
    return split(f"postgresql://{who}{host}{port}/{quote(str(settings['NAME']), safe='')}?{query}")


def _connection(alias: str) -> Any:
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connections
    except ImportError:
        raise ConfigurationError("django://… needs Django: pip install 'posthouse[django]'") from None
    try:
        if alias in connections:
            return connections[alias]
    except ImproperlyConfigured as error:
        raise ConfigurationError(
            f"django://{alias} cannot be looked up, because Django is not set up ({str(error).partition(',')[0]}): run "
            "commands as `manage.py posthouse …`, or set DJANGO_SETTINGS_MODULE"
        ) from error
    raise ConfigurationError(f"Django's DATABASES has no {alias!r}.{did_you_mean(alias, connections)}")
