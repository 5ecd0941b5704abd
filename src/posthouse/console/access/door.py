"""The door: what is asked of every request before anybody looks at who sent it. Host, Origin, form and size; and what every answer
tells the browser not to allow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from posthouse.console.access.access import is_loopback
from posthouse.console.asking import Refusal

SAFE = frozenset(("GET", "HEAD"))
LARGEST = 1024 * 1024
"""Bytes of a request's body."""
OF_STRANGERS = 8 * 1024
"""Bytes of the body of somebody who is not signed in: a token, or where they want to go."""
BODY_WITHIN = 30.0
"""Seconds for all of it."""

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def check_host(headers: Headers, names: frozenset[str] | None) -> str:
    """The Host that was asked for: one that is ours, or a page of a stranger could have its name lead here (DNS rebinding)."""
    said = headers.getlist("host")
    if len(said) != 1:
        raise Refusal(400, "A request names one host.")
    host = said[0].lower()
    if names is not None and host not in names and _without_port(host) not in names:
        raise Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            "This console does not go by the name in the address bar.",
            "Start it with --url or --host-name and that name, or use the address that it printed.",
        )
    return host


def is_here(headers: Headers) -> bool:
    """Whether the browser calls this its own host. It keeps strict transport by name, whatever the port: other servers there, which
    have nothing to do with this one, would be out of its reach for a year."""
    return is_loopback(_without_port(headers.get("host", "").lower()))


def check_site(method: str, headers: Headers, host: str, url: str) -> None:
    """Only our own page may ask, and only it may change something."""
    site, origins = headers.get("sec-fetch-site"), headers.getlist("origin")
    if method in SAFE:
        if site not in (None, "same-origin", "none"):
            raise Refusal(403, "Another site asked for this.", "Open the console itself.")
        return
    ours = origins == [_origin(url)] if url and _host(url) == host else [_host(one) for one in origins] == [host]
    if site not in (None, "same-origin") or (origins and not ours) or (site is None and not origins):
        raise Refusal(
            403, "This did not come from a page of the console.", "Nothing was changed. Press it in the console itself."
        )
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "What is sent here is application/json.", "Nothing was changed.")


async def read_body(headers: Headers, receive: Receive, largest: int) -> bytes:
    """All of it, within bounds of size and time."""
    too_large = Refusal(413, f"A request has {largest:,} bytes at most.", "Nothing was changed.")
    said = headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 20 or int(said) > largest:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(BODY_WITHIN):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "The request broke off.")
                chunk: bytes = message.get("body", b"")
                body += chunk
                if len(body) > largest:
                    raise too_large
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        raise Refusal(408, f"A request takes {BODY_WITHIN:g} seconds at most.", "Nothing was changed.") from None


def replaying(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read again."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def hardened(send: Send, is_api: bool, is_strict: bool) -> Send:
    """Every answer says what a browser must not allow; where `is_strict` also plain text, from now on."""

    async def saying(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if is_api:
                headers["cache-control"] = "no-store"
            if is_strict:
                headers["strict-transport-security"] = "max-age=31536000"
        await send(message)

    return saying


def answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json; charset=utf-8")


async def refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    said = {"error": {"message": refusal.message, "hint": refusal.hint}}
    await answer(said, refusal.status)(scope, receive, send)


def cookies(headers: Headers) -> Mapping[str, str]:
    """By name. Of two with one name the first, which is the one of the longer path."""
    found: dict[str, str] = {}
    for pair in "; ".join(headers.getlist("cookie")).split(";"):
        name, _, value = pair.strip().partition("=")
        found.setdefault(name, value)
    return found


def path_of(scope: Scope) -> str:
    """The path below where the console is mounted, as Starlette's routes see it. Some servers leave the mount out of the path."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    return below if below == "" or below.startswith("/") else path


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
