"""Permitted: what the account of AMQP may do, as the management API has it, in the server's own patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from posthouse.brokers.rabbitmq.management import Management, Permission
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Wish, strangers


async def permitted(management: Management, wishes: Sequence[Wish]) -> list[bool | None]:
    """Whoever binds a queue to a topic reads from it: to read is to bind. None where its user may not look at permissions."""
    try:
        found = await management.permission()
    except BrokerUnavailable:
        raise
    except BrokerError:  # the tag `administrator` is needed
        return [None] * len(wishes)
    others = strangers(wishes)
    return [any(_may(found, wish.verb, name) for name in ([wish.topic] if wish.topic else others)) for wish in wishes]


def _may(permission: Permission, verb: str, topic: str) -> bool:
    """A pattern that is found anywhere in the name is enough; an empty one allows nothing."""
    pattern = permission.write if verb == "publish" else permission.read
    return bool(pattern) and re.search(pattern, topic) is not None
