"""Servers: broker URLs as AsyncAPI names them, without credentials."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

import msgspec

from posthouse.local.url import split


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    host: str
    protocol: str
    pathname: str = ""


PROTOCOLS = {
    "kafka": "kafka",
    "nats": "nats",
    "postgresql": "postgresql",
    "rabbitmq": "amqp",
    "redis": "redis",
    "rediss": "rediss",
}


def server_of(url: str) -> Server | None:
    """None where there is no server to reach: embedded brokers, and those that a service was given as objects."""
    parts = split(url)
    host = parts.netloc.rpartition("@")[2]
    said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if parts.scheme == "pubsub":
        return Server(said.get("endpoint", "pubsub.googleapis.com"), "googlepubsub", f"/v1/projects/{host}")
    if parts.scheme == "sqs":
        return Server(f"sqs.{host}.amazonaws.com", "sqs")
    if parts.scheme not in PROTOCOLS or not host:
        return None
    protocol = PROTOCOLS[parts.scheme]
    if protocol == "kafka" and said.get("security.protocol", "").upper() in ("SSL", "SASL_SSL"):
        protocol = "kafka-secure"
    if protocol == "amqp" and said.get("tls", "").lower() in ("true", "1"):
        protocol = "amqps"
    path = parts.path if protocol in ("amqp", "amqps", "postgresql") and parts.path != "/" else ""
    return Server(host, protocol, path)


def named(brokers: Mapping[str, str]) -> tuple[dict[str, Server], dict[str, str]]:
    """Servers by name, and the name of each service's server. The name is the protocol, with a number where there are more."""
    servers: dict[str, Server] = {}
    places: dict[str, str] = {}
    for service in sorted(brokers):
        server = server_of(brokers[service])
        if server is not None:
            places[service] = next((name for name, known in servers.items() if known == server), "") or _new(
                servers, server.protocol
            )
            servers[places[service]] = server
    return servers, places


def _new(servers: Mapping[str, Server], protocol: str) -> str:
    number = sum(server.protocol == protocol for server in servers.values())
    return f"{protocol}-{number + 1}" if number else protocol
