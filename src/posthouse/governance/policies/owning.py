"""Rules about owners: somebody answers for each topic, and for the end of each version."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule


def unowned_topic(facts: Facts) -> Iterator[Found]:
    for topic in facts.document.topics:
        orphans = [e for e in facts.document.events if e.topic == topic.name and not e.owner.strip()]
        if orphans:
            sentence = (
                f"nobody answers for {topic.name}: no owner is declared for {', '.join(e.subject for e in orphans)}"
            )
            yield Found(where=topic.name, sentence=sentence, place=facts.place_of(orphans[0]))


def deprecated_without_successor(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if entry.deprecated is not None and entry.successor is None:
            sentence = (
                f"{entry.subject} is deprecated from {entry.deprecated:%Y-%m-%d} and has no later version to go to"
            )
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def deprecated_still_read(facts: Facts) -> Iterator[Found]:
    ended = {e.subject: e for e in facts.document.events if e.deprecated is not None and e.deprecated <= facts.today}
    for handler in facts.document.handlers:
        for reading in handler.reads:
            if entry := ended.get(reading.subject):
                towards = f"; read {entry.successor}" if entry.successor else ""
                sentence = (
                    f"{handler.name} reads {entry.subject}, deprecated since {entry.deprecated:%Y-%m-%d}{towards}"
                )
                yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


RULES = (
    Rule(
        id="unowned-topic",
        severity=Severity.WARNING,
        title="A topic that nobody answers for",
        sees="Topics with an event whose `owner` is empty.",
        why="When it breaks at night nobody knows whom to call, and nobody may decide about its schema.",
        fix='Say the team: `Service("orders", owner="team checkout")`, or `owner=` at the event.',
        seeds="C Quality Standards and §13 (event spaghetti); D §3.2",
        look=unowned_topic,
    ),
    Rule(
        id="deprecated-without-successor",
        severity=Severity.WARNING,
        title="A deprecated version without a successor",
        sees="Events with a `deprecated` day for which no later version is declared.",
        why="Consumers are told to leave and not where to go: nobody leaves.",
        fix="Declare the next version and publish both for a while; or take the deprecation back.",
        seeds="D §5.3; C §8; B Pattern 3",
        look=deprecated_without_successor,
    ),
    Rule(
        id="deprecated-still-read",
        severity=Severity.INFO,
        title="A handler of a version that has ended",
        sees="Handlers of an event whose `deprecated` day is today or before.",
        why="The owner waits for the last reader before the version can be retired.",
        fix="Read the successor.",
        seeds="D §5.3; C §8 (dated deprecation)",
        look=deprecated_still_read,
    ),
)
