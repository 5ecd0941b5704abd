"""Entitled: who may publish, read and replay each topic: what was declared, and the rights of the Apps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from posthouse.app import rights_of
from posthouse.governance.document import RightsEntry, TopicEntry
from posthouse.service import Service
from posthouse.trust.rights import Rights

Kept = Sequence[tuple[Rights, tuple[str, ...]]]


def rights_kept(services: Iterable[Service]) -> Kept:
    """The rights that there are, each once, with the services whose Apps keep them."""
    found: list[tuple[Rights, tuple[str, ...]]] = []
    for service in services:
        rights = rights_of(service)
        if rights is None:
            continue
        place = next((n for n, (known, _) in enumerate(found) if known == rights), None)
        if place is None:
            found.append((rights, (service.name,)))
        else:
            found[place] = (rights, (*found[place][1], service.name))
    return found


def entitled(topics: Iterable[TopicEntry], kept: Kept) -> tuple[RightsEntry, ...]:
    """What they say of each topic. The owner always publishes, and reads too."""
    return tuple(
        RightsEntry(
            topic=topic.name,
            publish=_both(topic.producers, rights.of("publish", topic.name) or ()),
            read=None if (read := rights.of("read", topic.name)) is None else _both(topic.producers, read),
            replay=None if (replay := rights.of("replay", topic.name)) is None else _both((), replay),
            services=names,
        )
        for topic in topics
        for rights, names in kept
    )


def _both(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *sorted(second))))
