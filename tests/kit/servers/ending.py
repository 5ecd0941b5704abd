"""Servers that cost something while nobody asks them: their tests come first, one server after the other, and each is ended
behind its last test. A RabbitMQ with the queues of a hundred tests takes a seventh of a processor to do nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

COSTLY = ("kafka_server", "managed_rabbitmq_server", "rabbitmq_server", "pubsub_server", "plain_pubsub_server")

_last = pytest.StashKey[dict[str, pytest.Item]]()


def servers_of(item: pytest.Item) -> list[str]:
    """The costly servers that a test asks for: by their fixtures, or by a parameter that is called like one."""
    chosen = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    asked = {*getattr(item, "fixturenames", ()), *(f"{value}_server" for value in chosen if isinstance(value, str))}
    return [name for name in COSTLY if name in asked]


def by_server(items: list[pytest.Item]) -> None:
    """Sort tests: what needs the same costly server stays together, in the order that it has."""
    items.sort(key=lambda item: min((COSTLY.index(name) for name in servers_of(item)), default=len(COSTLY)))


def note_last_uses(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    config.stash[_last] = {name: item for item in items for name in servers_of(item)}


def end_unused(item: pytest.Item) -> None:
    """End the servers for which this was the last test. Whoever asks for one all the same gets a new one."""
    for name in servers_of(item):
        if item.config.stash[_last].get(name) is item and isinstance(item, pytest.Function):
            for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
                fixture.finish(item._request)  # type: ignore[arg-type]  # of a request it wants the node alone
