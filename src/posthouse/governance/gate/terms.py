"""Terms in the gate: what changed about an event beside its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from posthouse.contracts.lock import Locked
from posthouse.contracts.terms import Retention
from posthouse.governance.bundle import TOPICS, Bundle
from posthouse.governance.gate.objection import Objection, Severity
from posthouse.governance.gate.readers import Readers

_SHORTEST_FIRST = get_args(Retention)


def term_objections(before: Bundle, after: Bundle, readers: Readers) -> Iterator[Objection]:
    """What speaks against changed terms of events that are in both. Locks of older releases know none: there the topics
    tell whether the order changed."""
    for path in sorted(before.schemas.keys() & after.schemas.keys()):
        old, new = before.lock.schemas.get(path), after.lock.schemas.get(path)
        if old is None or new is None:
            continue
        for rule in _RULES:
            found = rule(old, new)
            if found is not None:
                yield _objection(path, new, *found, readers)
    yield from _orders(before, after, readers)


_Said = tuple[str, Severity, str, str, str]
"""Rule, severity, sentence, way out, and what tells this change from another."""


def _subject(old: Locked, new: Locked) -> _Said | None:
    if old.subject == new.subject:
        return None
    return (
        "subject-renamed",
        Severity.ERROR,
        f"It was called {old.subject}: those who read that name get nothing any more.",
        f"Declare {old.subject} again; another name is another event, with a topic and subscriptions of its own.",
        f"{old.subject} {new.subject}",
    )


def _topic(old: Locked, new: Locked) -> _Said | None:
    if old.topic == new.topic or not (old.topic and new.topic):
        return None
    return (
        "topic-changed",
        Severity.ERROR,
        f"It moves from the topic {old.topic} to {new.topic}: consumers that subscribe to the old one get nothing any more.",
        "Leave it where it is, or declare a new version for the new topic and publish both.",
        f"{old.topic} {new.topic}",
    )


def _key(old: Locked, new: Locked) -> _Said | None:
    if old.key == new.key or not (old.topic and new.topic):
        return None
    if new.key is None:
        sentence = f"It is no longer ordered by {old.key!r}: consumers may get facts of one {old.key} in any order."
    elif old.key is None:
        sentence = (
            f"It is ordered by {new.key!r} now, and was not: what is on its way has no number, and comes in any order."
        )
    else:
        sentence = (
            f"It is ordered by {new.key!r} now, not by {old.key!r}: facts of one {old.key} may overtake each other."
        )
    way_out = "Leave the key as it is, or declare a new version with the new key and publish both."
    return "key-changed", Severity.ERROR, sentence, way_out, f"{old.key} {new.key}"


def _retention(old: Locked, new: Locked) -> _Said | None:
    if old.retention == new.retention or not (old.topic and new.topic):
        return None
    shorter = _SHORTEST_FIRST.index(new.retention) < _SHORTEST_FIRST.index(old.retention)
    return (
        "retention-shortened" if shorter else "retention-lengthened",
        Severity.WARNING if shorter else Severity.NOTE,
        f"It is kept {new.retention} now, not {old.retention}.",
        "Make sure that nobody replays or must keep older facts." if shorter else "Nothing, if the data may be kept.",
        f"{old.retention} {new.retention}",
    )


def _residency(old: Locked, new: Locked) -> _Said | None:
    if old.residency == new.residency or not (old.topic and new.topic):
        return None
    return (
        "residency-changed",
        Severity.WARNING,
        f"Its data may be in {new.residency or 'any region'} now, not {old.residency or 'any region'}.",
        "Ask whoever answers for the data, and for the consumers outside that region.",
        f"{old.residency} {new.residency}",
    )


def _idempotency(old: Locked, new: Locked) -> _Said | None:
    if old.idempotency == new.idempotency or not (old.topic and new.topic):
        return None
    dropped = new.idempotency == "optional"
    return (
        "idempotency-dropped" if dropped else "idempotency-required",
        Severity.ERROR if dropped else Severity.NOTE,
        "It may come without an idempotency key now, and could not."
        if dropped
        else "It always has an idempotency key now.",
        "Leave idempotency='required': readers may tell a repeated intent by nothing else."
        if dropped
        else "Facts that are on their way may still come without one.",
        f"{old.idempotency} {new.idempotency}",
    )


def _owner(old: Locked, new: Locked) -> _Said | None:
    if old.owner == new.owner or not (old.topic and new.topic):
        return None
    return (
        "owner-changed",
        Severity.NOTE if new.owner else Severity.WARNING,
        f"{new.owner or 'Nobody'} answers for it now, not {old.owner or 'nobody'}.",
        "Tell those who read it whom to ask." if new.owner else "Name the team that answers for it.",
        f"{old.owner} {new.owner}",
    )


_RULES: tuple[Callable[[Locked, Locked], _Said | None], ...] = (
    _subject, _topic, _key, _retention, _residency, _idempotency, _owner,
)  # fmt: skip


def _objection(
    path: str, locked: Locked, rule: str, severity: Severity, sentence: str, way_out: str, change: str, readers: Readers
) -> Objection:
    return Objection(
        rule=rule,
        severity=severity,
        subject=locked.subject,
        file=path,
        sentence=sentence,
        way_out=way_out,
        change=change,
        touched=readers.of(locked.subject),
    )


def _orders(before: Bundle, after: Bundle, readers: Readers) -> Iterator[Objection]:
    """Topics whose order changed, where the lock does not say it of each event."""
    told = {locked.topic for locked in before.lock.schemas.values()}
    now = {topic.name: topic for topic in after.topics}
    for topic in before.topics:
        new = now.get(topic.name)
        if new is not None and topic.name not in told and topic.producers and topic.ordering != new.ordering:
            was, is_now = (", ".join(one.ordering) or "nothing" for one in (topic, new))
            yield Objection(
                rule="key-changed",
                severity=Severity.ERROR,
                subject=topic.name,
                file=TOPICS,
                sentence=f"The topic is ordered by {is_now} now, not by {was}.",
                way_out="Leave the keys of its events as they are, or declare new versions and publish both.",
                change=f"{was} {is_now}",
                touched=tuple(dict.fromkeys(one for subject in new.subjects for one in readers.of(subject))),
            )
