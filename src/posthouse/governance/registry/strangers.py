"""Requests that a web page sent without its reader's knowing: told by Host, Origin and the kind of the body."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from posthouse.governance.registry import refusal

BODIES = frozenset(
    (
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    )
)
"""Those of Confluent. A page of another site cannot send any of them without being asked first, which nobody answers."""


def check_sender(headers: Headers, *, loopback: bool) -> None:
    """Raises Refusal for what another site sent. With `loopback` only the names of this machine are answered to: a name
    that leads here is how a page speaks to what its reader's machine alone can reach."""
    host = headers.get("host", "")
    if loopback and not is_this_machine(host):
        raise refusal.wrong_host(host)
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != host.lower():
        raise refusal.other_site(origin)
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise refusal.other_site(origin or "")


def _host_of(origin: str) -> str | None:
    """None where it is no address at all."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def check_body_kind(headers: Headers) -> None:
    """Raises Refusal where the body is not said to be JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODIES:
        raise refusal.wrong_body_kind(kind)


def chosen_kind(accept: str) -> str | None:
    """The content type that an answer has, of those that are asked for; None where none can be given."""
    best: tuple[float, str] | None = None
    for part in (accept or "*/*").split(","):
        name, *parameters = [piece.strip().lower() for piece in part.split(";")]
        weight = _weight(parameters)
        given = ANSWERS.get(name)
        if given is not None and weight > 0 and (best is None or weight > best[0]):
            best = (weight, given)
    return best[1] if best else None


JSON = "application/vnd.schemaregistry.v1+json"
ANSWERS = {
    JSON: JSON,
    "application/vnd.schemaregistry+json": "application/vnd.schemaregistry+json",
    "application/json": "application/json",
    "application/*": JSON,
    "*/*": JSON,
}


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def is_this_machine(host: str) -> bool:
    """Whether a Host header names the loopback, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
