"""The public keys of an issuer: a JSON Web Key Set, fetched when it is needed and kept as long as it may be."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Collection, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError

log = logging.getLogger("posthouse.push")

GOOGLE = "https://www.googleapis.com/oauth2/v3/certs"

TIMEOUT = 5.0
LARGEST = 256 * 1024
"""Bytes of a set of keys."""
SHORTEST, LONGEST = 300.0, 86_400.0
"""Seconds for which a set is good, whatever its issuer says."""
GRACE = 3_600.0
"""Seconds for which an old set is used on while no new one can be had."""
PAUSE = 30.0
"""Seconds between two fetches, whatever asks for them: strange key ids must not become a flood of fetches."""
FEWEST_BITS = 2048
ELSEWHERE = ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200")
"""Where AWS and Google tell them by IPv6, and Alibaba."""
MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})")


PublicKey = RSAPublicKey | EllipticCurvePublicKey


class KeysUnavailable(Exception):
    """Whether a token is good cannot be told now."""


class Entry(msgspec.Struct, frozen=True):
    """What is looked at of one key; all others of the set are passed over."""

    kid: str
    kty: str
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""
    alg: str = ""
    use: str = "sig"


class KeySet:
    """Keys by their id. One fetch at a time, at most one in half a minute. A key signs by one algorithm, which follows from its
    type: RS256 for RSA, ES256 for P-256."""

    def __init__(self, url: str, clock: Clock, algorithms: Collection[str] = ("RS256",)) -> None:
        self._url = _checked(url)
        self._clock = clock
        self._algorithms = algorithms
        self._keys: Mapping[str, PublicKey] = {}
        self._good_until = float("-inf")
        self._asked_at: float | None = None
        self._fetching = asyncio.Lock()

    async def key(self, kid: str) -> PublicKey | None:
        """None when the issuer has no such key. Raises KeysUnavailable."""
        if not self._is_fresh(kid):
            async with self._fetching:
                if not self._is_fresh(kid) and self._may_ask():
                    await self._fetch()
        now = self._clock.monotonic()
        if not self._keys or now > self._good_until + GRACE:
            raise KeysUnavailable("the keys of the issuer cannot be had")
        return self._keys.get(kid)

    def _is_fresh(self, kid: str) -> bool:
        return kid in self._keys and self._clock.monotonic() <= self._good_until

    def _may_ask(self) -> bool:
        return self._asked_at is None or self._clock.monotonic() - self._asked_at >= PAUSE

    async def _fetch(self) -> None:
        self._asked_at = self._clock.monotonic()
        try:
            body, age = await asyncio.to_thread(_get, self._url)
            keys = _keys_in(body, self._algorithms)
        except (OSError, HTTPException, ValueError) as error:
            log.warning("the keys at %s cannot be had, next try in %.0f s: %s", self._url, PAUSE, error)
            return
        if not keys:
            log.warning(
                "the set at %s has no key for %s: the last one is kept", self._url, " or ".join(self._algorithms)
            )
            return
        self._keys = keys
        self._good_until = self._clock.monotonic() + min(max(age, SHORTEST), LONGEST)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Whoever is sent elsewhere does not go."""


def reached(
    place: tuple[str, int], timeout: float | None = TIMEOUT, source: tuple[str, int] | None = None
) -> socket.socket:
    """A connection to one of the addresses that were looked at: a name that leads elsewhere when it is asked again gains nothing."""
    found = [str(address[0]) for *_, address in socket.getaddrinfo(*place, type=socket.SOCK_STREAM)]
    if secret := next((address for address in found if _is_metadata(address)), None):
        raise OSError(
            f"{place[0]} leads to {secret}, where clouds tell their machines secrets: nothing was asked there"
        )
    for address in found[:-1]:
        try:
            return socket.create_connection((address, place[1]), timeout, source)
        except OSError:
            continue
    return socket.create_connection((found[-1], place[1]), timeout, source)


class _Plain(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_looking, HTTPConnection), req)


class _Secure(HTTPSHandler):
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_looking, HTTPSConnection), req)


def _looking(kind: type[HTTPConnection], host: str, **options: Any) -> HTTPConnection:
    connection = kind(host, **options)
    vars(connection)["_create_connection"] = reached  # which http.client has for this
    return connection


_opener = build_opener(_NoRedirect, _Plain, _Secure)


def _get(url: str) -> tuple[bytes, float]:
    """The body, and the seconds for which it may be kept."""
    try:
        opened = _opener.open(url, timeout=TIMEOUT)
    except HTTPError as refused:
        refused.close()  # it holds the connection
        raise
    with opened as answer:
        body: bytes = answer.read(LARGEST + 1)
        said = MAX_AGE.search(answer.headers.get("Cache-Control", "").lower())
    if len(body) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return body, float(said[1]) if said else 0.0


def _keys_in(body: bytes, algorithms: Collection[str]) -> dict[str, PublicKey]:
    """Those that sign with one of the algorithms and are long enough."""
    found: dict[str, PublicKey] = {}
    for raw in msgspec.json.decode(body, type=dict[str, list[msgspec.Raw]]).get("keys", []):
        try:
            entry = msgspec.json.decode(raw, type=Entry)
            algorithm = {"RSA": "RS256", "EC": "ES256"}.get(entry.kty, "")
            if (
                algorithm not in algorithms
                or entry.alg not in ("", algorithm)
                or entry.use != "sig"
                or entry.crv not in ("", "P-256")
            ):
                continue
            said = {name: getattr(entry, name) for name in ("kty", "n", "e", "crv", "x", "y") if getattr(entry, name)}
            key = jwt.PyJWK(said, algorithm=algorithm).key
        except (msgspec.ValidationError, jwt.PyJWTError, ValueError):
            continue
        if isinstance(key, EllipticCurvePublicKey) or (isinstance(key, RSAPublicKey) and key.key_size >= FEWEST_BITS):
            found[entry.kid] = key
    return found


def _checked(url: str) -> str:
    """https, or a test's own server on the loopback."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname and not _is_metadata(parts.hostname):
        return url
    try:
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
        if parts.scheme == "http" and ipaddress.ip_address(host).is_loopback:
            return url
    except ValueError:
        pass
    raise ConfigurationError(f"keys_url={url!r}: keys come by https only, or from a loopback address in tests")


def _is_metadata(host: str) -> bool:
    """Whether it is an address where clouds tell their machines secrets: one of the link, or of those who chose another."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_link_local or str(found) in ELSEWHERE
