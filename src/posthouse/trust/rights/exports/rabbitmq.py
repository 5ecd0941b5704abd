"""RabbitMQ: permissions of users in a virtual host, as `rabbitmqctl import_definitions` and the management API take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from posthouse.trust.rights.account import Account, Files

VHOST = "/"
MEMBERS = r"posthouse\.members"
OWN_QUEUE = r"amq\.gen-.*"
"""Of the one queue that each member of a group has for itself."""


class Permission(msgspec.Struct, frozen=True):
    """Of one user: which names it may make, write to and read from, as regular expressions."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


def permission(account: Account) -> Permission:
    """A topic is an exchange, with a second one and a queue for what nobody takes; a group has queues of its own. Whoever binds a
    queue reads from the exchange and writes to the queue."""
    made = [re.escape(name) for topic in account.published for name in (topic, f"{topic}.unread")]
    if account.foreign:
        return Permission(account.name, VHOST, "^$", _any(re.escape(topic) for topic in account.published), "^$")
    lanes = [rf"{re.escape(f'{group}.{topic}.')}[0-9]+of[0-9]+" for group, topic in account.places]
    lanes += [
        rf"{re.escape(model)}\.g[0-9]+\.{re.escape(topic)}\.[0-9]+of[0-9]+"
        for model, topics in account.models.items()
        for topic in topics
    ]
    ours = [*made, *lanes, *([MEMBERS, OWN_QUEUE] if lanes else [])]
    read = [*ours, *(re.escape(topic) for topic in account.read)]
    return Permission(account.name, VHOST, _any(ours), _any(ours), _any(read))


def rabbitmq(accounts: Sequence[Account]) -> Files:
    said = {"permissions": [msgspec.to_builtins(permission(account)) for account in accounts]}
    return {"definitions.json": msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"}


def _any(patterns: Iterable[str]) -> str:
    listed = sorted(set(patterns))
    return f"^({'|'.join(listed)})$" if listed else "^$"
