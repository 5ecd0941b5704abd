"""Permitted: what this account may do. The server tells each user which subjects it may publish to and subscribe to; what that comes
to for a topic is decided here. Pure, but for one question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from posthouse.brokers.nats.client import Client
from posthouse.brokers.nats.ledger import STREAM
from posthouse.brokers.nats.messages import stream_of
from posthouse.brokers.nats.users import Permissions, Subjects
from posthouse.survey import Wish

READING = (
    "$JS.API.CONSUMER.CREATE.{}",
    "$JS.API.CONSUMER.CREATE.{}.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.{}.*",
    "$JS.API.CONSUMER.MSG.NEXT.{}.*",
    "$JS.API.DIRECT.GET.{}",
    "$JS.API.DIRECT.GET.{}.>",
    "$JS.API.STREAM.MSG.GET.{}",
)
"""The ways to what a stream holds."""
OURS = ("$JS.>", "$SYS.>", "$KV.>", "$O.>", "_INBOX.>", "posthouse-groups.>", "posthouse-groups-hint.>")
"""Subjects that no topic has."""
INBOX = "_INBOX.nobodys.nobodys"
"""Where another service hears answers that did not name an inbox of its own: whoever listens there reads what that one fetches."""


async def permitted(client: Client, wishes: Sequence[Wish]) -> list[bool | None]:
    """None for all where a server answers that does not know."""
    who = await client.who()
    if not who.told:
        return [None] * len(wishes)
    return allowed(who.permissions or Permissions(), wishes, client.inbox_prefix)


def allowed(permissions: Permissions, wishes: Sequence[Wish], inbox: str) -> list[bool | None]:
    """The answer to each wish; None where it is so of some partitions only. `inbox`: how our own subjects of answers begin. Pure."""
    topics = sorted({wish.topic for wish in wishes if wish.topic is not None})
    return [_answer(permissions, wish, topics, inbox) for wish in wishes]


def _answer(permissions: Permissions, wish: Wish, topics: Sequence[str], inbox: str) -> bool | None:
    publish, topic = permissions.publish, wish.topic
    known = [pattern for name in topics for pattern in (name, f"{name}.*")]
    if wish.verb == "publish":
        return _has_others(publish, [*OURS, *known]) if topic is None else _partitions(publish, topic)
    if topic is None:
        heard = [*OURS, f"{inbox}.>", *known]
        return _wholly(permissions.subscribe, INBOX) is not False or (
            _has_others(permissions.subscribe, heard) or _reads_others(publish, topics)
        )
    stream = stream_of(topic)
    steps = (f"$JS.API.CONSUMER.CREATE.{stream}.*.{topic}.*", f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*")
    found = [_wholly(publish, step) for step in steps]
    return False if False in found else None if None in found else True


def _partitions(publish: Subjects, topic: str) -> bool | None:
    """A partition is a number: the dead letters of a topic lie beside these."""
    words = ("*", ">")
    numbers = [one for one in _allow(publish) if (last := one.rpartition(".")[2]) in words or last.isdecimal()]
    return _wholly(Subjects(numbers, publish.deny), f"{topic}.*") if numbers else False


def _wholly(subjects: Subjects, pattern: str) -> bool | None:
    """Whether all that a pattern means is allowed; None: some of it."""
    met = [one for one in _allow(subjects) if meets(one, pattern)]
    if not met or any(covers(one, pattern) for one in _bare(subjects.deny)):
        return False
    whole = any(covers(one, pattern) for one in met)
    return True if whole and not any(meets(one, pattern) for one in _bare(subjects.deny)) else None


def _reads_others(publish: Subjects, topics: Sequence[str]) -> bool:
    """From streams beside those of these topics."""
    streams = {STREAM, *(stream_of(topic) for topic in topics)}
    return any(_reaches(publish, way, streams) for way in READING)


def _reaches(publish: Subjects, way: str, streams: Iterable[str]) -> bool:
    """Whether one of the ways leads to a stream that nobody named."""
    everywhere = way.format("*")
    if any(covers(one, everywhere) for one in _bare(publish.deny)):
        return False
    mine = [way.format(stream) for stream in streams]
    return any(meets(one, everywhere) and not any(covers(own, one) for own in mine) for one in _allow(publish))


def _has_others(subjects: Subjects, known: Sequence[str]) -> bool:
    """Whether something is allowed beside what is known, and not denied again."""
    beyond = [one for one in _allow(subjects) if not any(covers(each, one) for each in known)]
    return any(not any(covers(no, one) for no in _bare(subjects.deny)) for one in beyond)


def _allow(subjects: Subjects) -> list[str]:
    return _bare(subjects.allow) or [">"]


def _bare(patterns: Iterable[str]) -> list[str]:
    """Without the name of a queue group."""
    return [pattern.split()[0] for pattern in patterns if pattern.strip()]


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that `narrow` means is one that `wide` means."""
    ours, theirs = wide.split("."), narrow.split(".")
    for place, word in enumerate(ours):
        if word == ">":
            return len(theirs) > place
        if place >= len(theirs) or theirs[place] == ">" or word not in ("*", theirs[place]):
            return False
    return len(ours) == len(theirs)


def meets(one: str, other: str) -> bool:
    """Whether some subject is meant by both."""
    ours, theirs = one.split("."), other.split(".")
    for mine, yours in zip(ours, theirs, strict=False):
        if ">" in (mine, yours):
            return True
        if "*" not in (mine, yours) and mine != yours:
            return False
    return len(ours) == len(theirs)
