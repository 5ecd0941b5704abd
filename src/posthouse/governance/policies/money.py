"""Rules about money and stock: never the last writer wins, never twice, and kept as long as the law wants."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.document import EventEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import VERSIONS, matches, words


def last_write_wins(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        held = [field.path for field in (*facts.amounts(entry.subject), *facts.stocks(entry.subject))]
        if not held or _numbered(entry, facts):
            continue
        if entry.key is None:
            sentence = (
                f"{entry.subject} holds {held[0]} and has neither a key nor a version: whoever is applied last wins"
            )
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))
        else:
            yield from _unordered_readers(entry, held[0], facts)


def _numbered(entry: EventEntry, facts: Facts) -> bool:
    return any(VERSIONS.intersection(words(field.name)) for field in facts.fields[entry.subject])


def _unordered_readers(entry: EventEntry, field: str, facts: Facts) -> Iterator[Found]:
    for handler in facts.document.handlers:
        if handler.reliability.order == "none" and any(reading.subject == entry.subject for reading in handler.reads):
            sentence = (
                f"{handler.name} reads {field} of {entry.subject} in no order: an older amount may replace a newer one"
            )
            fix = 'remove order="none" from its policy, or put a version into the payload and refuse older ones'
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler), fix=fix)


def float_money(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        for field in facts.amounts(entry.subject):
            if "number" in field.kinds:
                sentence = f"{entry.subject}: {field.path} is money in a float, which cannot hold most amounts exactly"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def money_without_idempotency_key(facts: Facts) -> Iterator[Found]:
    for publish in facts.code.publishes:
        entry = facts.entry_of(publish)
        if entry is None or entry.subject not in facts.money or publish.key != "missing":
            continue
        if facts.in_transaction(publish.function) is None:
            sentence = f"{publish.function} publishes {entry.subject}, which moves money, without an idempotency key"
            yield Found(where=entry.subject, sentence=sentence, place=publish.place)


def short_retention(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if entry.retention != "cold" and (why := _why_cold(entry, facts)):
            sentence = f"{entry.subject} is kept {entry.retention}, and {why}"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def _why_cold(entry: EventEntry, facts: Facts) -> str:
    if entry.subject in facts.money:
        return "it is about money"
    if matches(entry.subject, facts.settings.cold):
        return "the settings list it as cold"
    made = any(matches(token, facts.settings.ai) for token in (entry.service, entry.aggregate or ""))
    return "it is a decision of a model" if made else ""


RULES = (
    Rule(
        id="last-write-wins",
        severity=Severity.ERROR,
        title="Money or stock where the last writer wins",
        sees="Payloads with a field that holds money or stock, in an event that has neither `key` nor a field such as `version` or "
        '`sequence`; and handlers that read such an event with `order="none"`. What a handler does with the amount is not seen.',
        why="Two changes that cross leave one of them lost without a trace; a balance that was overwritten cannot be audited.",
        fix="Declare a `key`; publish what was added, not what the balance is; let the owner alone count stock.",
        seeds="D §1.1 and §15; C §13 (payments in order per customer)",
        look=last_write_wins,
    ),
    Rule(
        id="float-money",
        severity=Severity.WARNING,
        title="Money in a float",
        sees="A field that holds money and is of type `number`.",
        why="0.1 + 0.2 is not 0.3; sums of many consumers drift apart by cents.",
        fix="Count the smallest unit in an integer (`total_cents`), or use Decimal, which travels as text.",
        seeds="C §2 (`total_cents`); B, Pattern 3 (amounts as text)",
        look=float_money,
    ),
    Rule(
        id="money-without-idempotency-key",
        severity=Severity.ERROR,
        title="Money that is moved without an idempotency key",
        sees="`publish` and `outbox.add` without `idempotency_key`, outside handlers and sagas, of an event whose payload holds "
        "money. Inside a handler the inbox sees to it that its facts are said once, in the turn of a saga its row does.",
        why="A request from outside is sent again when its answer is lost; without a key the second one charges again.",
        fix='Give a key that follows from the intent: `idempotency_key=f"payments:charge:{charge_id}"`.',
        seeds="B Introduction and Pattern 2; D §4 and §15",
        look=money_without_idempotency_key,
    ),
    Rule(
        id="short-retention",
        severity=Severity.WARNING,
        title="Facts that the law wants kept, kept for a short time",
        sees="Events about money, of a model, or on the list `cold` of the settings, whose `retention` is not `cold`.",
        why="Disputes about money, keys and decisions of models come up years later.",
        fix='Declare `retention="cold"`.',
        seeds="D §13",
        look=short_retention,
    ),
)
