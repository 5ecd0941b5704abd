"""Links: who may listen on the way to a store or a broker, as far as its URL says."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from posthouse.checks import Check
from posthouse.local.django import database_of
from posthouse.local.url import split

State = Literal["plain", "unproven", "proven"]
"""unproven: nobody can listen who only listens, and anybody can answer in the server's place."""
NAME = "encryption"
NO = ("false", "0", "no", "none", "off")
PLAIN = "{} in plain text: whoever stands on the way reads events and passwords, and may change them"
UNPROVEN = "{} by TLS that does not prove who answers: whoever stands on the way may pass for the server"
FIX = "add {} to the URL (docs/tls.md)"


class Link(NamedTuple):
    """One way from here. `fix` is what its URL should say."""

    to: str
    state: State
    fix: str = "tls=true"


def encryption_check(url: str, environ: Mapping[str, str] = os.environ) -> Check | None:
    """Whether all that leaves this host for that URL is encrypted, to a server that proves its name; None where nothing does."""
    parts = split(url)
    found = links(database_of(parts) if parts.scheme == "django" else parts, environ)
    if not found:
        return None
    for state, words in (("plain", PLAIN), ("unproven", UNPROVEN)):
        bad = [link for link in found if link.state == state]
        if bad:
            places = ", ".join(dict.fromkeys(link.to for link in bad))
            return Check(name=NAME, found=words.format(places), judgement="warn", fix=FIX.format(bad[0].fix))
    places = ", ".join(dict.fromkeys(link.to for link in found))
    return Check(name=NAME, found=f"{places} by TLS, and the server proves its name")


def links(parts: SplitResult, environ: Mapping[str, str] = os.environ) -> list[Link]:
    """The ways out of this host that a URL stands for; what stays on the loopback or in a socket's file is none."""
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    return [link for link in _found(parts, said, environ) if not is_loopback(_host(link.to))]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; a path is a socket's."""
    if host in ("localhost", "") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _found(parts: SplitResult, said: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Link]:
    match parts.scheme:
        case "postgresql" | "postgres":
            yield from _postgres(parts, said, environ)
        case "nats":
            yield from _to(parts, "proven" if _asked(said) else "plain")
        case "rabbitmq":
            yield from _to(parts, "proven" if _asked(said) else "plain")
            yield from _http(said.get("management"), "management=https://…")
        case "redis" | "rediss":
            yield from _to(parts, _redis(parts, said))
        case "kafka":
            yield from _to(parts, _kafka(said))
        case "sqs":
            yield from _http(said.get("endpoint"), "endpoint=https://…")
        case "pubsub":
            if emulator := said.get("emulator") or environ.get("PUBSUB_EMULATOR_HOST"):
                yield Link(emulator, "proven" if _asked(said) else "plain")


def _asked(said: Mapping[str, str]) -> bool:
    """Whether our own words turn it on."""
    if "tls" in said:
        return said["tls"].lower() not in NO
    return any(name in said for name in ("tls_ca", "tls_cert", "tls_key"))


def _to(parts: SplitResult, state: State) -> Iterator[Link]:
    for server in parts.netloc.rpartition("@")[2].split(","):
        yield Link(server, state)


def _http(url: str | None, fix: str) -> Iterator[Link]:
    if url and url.startswith("http:"):
        yield Link(urlsplit(url).netloc.rpartition("@")[2], "plain", fix)


def _redis(parts: SplitResult, said: Mapping[str, str]) -> State:
    if not _asked(said) and parts.scheme != "rediss":
        return "plain"
    loose = said.get("ssl_cert_reqs", "required") in ("none", "optional")
    return "unproven" if loose or said.get("ssl_check_hostname", "true").lower() in NO else "proven"


def _kafka(said: Mapping[str, str]) -> State:
    if not _asked(said) and said.get("security.protocol", "").upper() not in ("SSL", "SASL_SSL"):
        return "plain"
    loose = said.get("enable.ssl.certificate.verification", "true").lower() in NO
    return "unproven" if loose or said.get("ssl.endpoint.identification.algorithm") == "none" else "proven"


def _postgres(parts: SplitResult, said: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Link]:
    if _asked(said):
        state: State = "proven"
    else:
        mode = "disable" if "tls" in said else said.get("sslmode") or environ.get("PGSSLMODE", "prefer")
        state = "proven" if mode == "verify-full" else "unproven" if mode in ("require", "verify-ca") else "plain"
    servers = parts.netloc.rpartition("@")[2] or said.get("host") or environ.get("PGHOST", "")
    for server in servers.split(","):
        yield Link(server, state)
    for name in ("listen_url", "runtime_url"):
        if name in said:
            other = split(said[name])
            yield from _postgres(other, dict(parse_qsl(other.query, keep_blank_values=True)), environ)


def _host(server: str) -> str:
    """Without its port."""
    if server.startswith(("/", "@")):
        return server
    if server.startswith("["):
        return server[1:].partition("]")[0]
    return server.rpartition(":")[0] or server
