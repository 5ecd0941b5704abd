"""Rules about intent: what was meant once must be said once, however often it is sent."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule


def missing_idempotency_key(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if entry is None or publish.key != "missing" or entry.subject in facts.money or entry.idempotency == "required":
            continue
        if facts.in_transaction(publish.function) is None:
            sentence = f"{publish.function} publishes {entry.subject} without an idempotency key"
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)


def unkept_idempotency(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if entry is None or publish.key != "missing" or entry.idempotency != "required":
            continue
        if facts.in_transaction(publish.function) is None:
            sentence = (
                f"{publish.function} publishes {entry.subject}, whose contract asks for an idempotency key, without one"
            )
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)


def random_idempotency_key(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if entry is not None and publish.key == "random":
            sentence = (
                f"{publish.function} makes up the idempotency key of {entry.subject}: it is another one each time"
            )
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)


def unscoped_idempotency_key(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if entry is not None and publish.prefix is not None and publish.key == "given" and ":" not in publish.prefix:
            sentence = (
                f"{publish.function} gives {entry.subject} an idempotency key that does not begin with what it is for"
            )
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)


RULES = (
    Rule(
        id="missing-idempotency-key",
        severity=Severity.INFO,
        title="An event that is published from outside without an idempotency key",
        sees="`publish` and `outbox.add` without `idempotency_key`, outside handlers and sagas. Where the event holds money, "
        "[money-without-idempotency-key](money-without-idempotency-key.md) says so instead.",
        why="A client that repeats its request makes a second fact of one intent.",
        fix="Give a key that follows from the intent, as the client's own key or the id and version of what changed.",
        seeds="D §4 and §15; B Executive Summary; REQUIREMENTS E7",
        look=missing_idempotency_key,
    ),
    Rule(
        id="unkept-idempotency",
        severity=Severity.ERROR,
        title="A fact without the idempotency key that its contract asks for",
        sees='`publish` and `outbox.add` without `idempotency_key` of an event that is declared with `idempotency="required"`, outside '
        "handlers and sagas, whose facts have one that follows from their cause.",
        why="It is refused with RuleBroken when the line runs, which may be late.",
        fix="Give a key that follows from the intent, as the client's own key or the id and version of what changed.",
        seeds="D §4 and §15 (a missing one fails the contract gate); REQUIREMENTS E7",
        look=unkept_idempotency,
    ),
    Rule(
        id="random-idempotency-key",
        severity=Severity.ERROR,
        title="An idempotency key that is made up",
        sees="`idempotency_key=` with a call of `uuid4`, `token_hex`, `now`, `time`, `random` and their like in it.",
        why="A repeated request gets another key: it looks guarded, and is not.",
        fix="Derive the key from the intent: the client's key, or the id and version of what changed.",
        seeds="D §4 (deterministic from the business intent)",
        look=random_idempotency_key,
    ),
    Rule(
        id="unscoped-idempotency-key",
        severity=Severity.WARNING,
        title="An idempotency key without a name in front",
        sees="`idempotency_key=` that is a text or an f-string without `name:` at its start. Keys out of variables are not seen.",
        why="A key is one per tenant and topic: two intents that share an id, as an order placed and the same order paid, collide, "
        "and the second fact is dropped as a duplicate.",
        fix='Begin with what it is for: `f"orders:place:{order_id}"`.',
        seeds="B Failure 2 (`{service}:{aggregate}:{uuid}`)",
        look=unscoped_idempotency_key,
    ),
)
