"""Naming: what our connections are called on a server, `posthouse/<service or verb>/<role>`, for whoever looks there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from sys import argv
from urllib.parse import parse_qs, urlsplit

MOST = 63
"""Characters that PostgreSQL keeps of a name."""

_who: ContextVar[str] = ContextVar("posthouse_who", default="")
_verb: ContextVar[str] = ContextVar("posthouse_verb", default="")


@contextmanager
def named(who: str) -> Iterator[None]:
    """What is made in this block connects for `who`."""
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def name_verb(verb: str) -> Callable[[], None]:
    """A command runs: all that it opens is called by that, until what is returned is called."""
    token = _verb.set(verb)
    return lambda: _verb.reset(token)


def client_name(role: str) -> str:
    """For a connection that does one kind of work: `store`, `broker`, `listen`, `handlers` …"""
    who = _verb.get() or _who.get() or Path(argv[0] if argv else "").stem or "python"
    room = MOST - len(f"posthouse//{role}")
    return f"posthouse/{re.sub(r'[^A-Za-z0-9_.+-]+', '+', who)[:room]}/{role}"


def given_name(url: str) -> str | None:
    """The application_name that a URL says, which goes before ours."""
    return parse_qs(urlsplit(url).query).get("application_name", [None])[0]
