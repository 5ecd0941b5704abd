"""Permitted: what this account may do. The server judges a command before it looks at what is in it, so one that cannot succeed
tells without doing anything, and without a right to ask."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.brokers.redis.client import Client, Refused
from posthouse.survey import Wish, strangers

NO_ID = "nobodys"
"""Not an id of an entry: whoever may do it is told so."""


async def permitted(client: Client, wishes: Sequence[Wish]) -> list[bool | None]:
    """Without a topic: of names that nobody has."""
    others = strangers(wishes)
    return [await _any(client, wish.verb, others if wish.topic is None else [wish.topic]) for wish in wishes]


async def _any(client: Client, verb: str, topics: Sequence[str]) -> bool | None:
    found = [await _may(client, verb, topic) for topic in topics]
    return True if any(found) else None if None in found else False


async def _may(client: Client, verb: str, topic: str) -> bool | None:
    """Each command breaks off at its id, before it touches its key."""
    commands: dict[str, Sequence[str]] = {
        "publish": ("XADD", topic, "NOMKSTREAM", NO_ID, "a", "b"),
        "read": ("XRANGE", topic, NO_ID, "+"),
    }
    try:
        await client.ask(*commands[verb])
    except Refused as error:
        if "Invalid stream ID" in str(error):
            return True
        return False if "NOPERM" in str(error) or "permissions" in str(error) else None
    return None
