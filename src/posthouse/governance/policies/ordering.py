"""Rules about order: what orders the facts of one thing, and where order ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from posthouse.governance.document import EventEntry, HandlerEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import words


def missing_key(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if entry.key is None and (field := _could_order(entry, facts)):
            sentence = (
                f"{entry.subject} has no key: facts about one {entry.aggregate or 'thing'} may be applied in any order"
            )
            fix = f'declare key="{field}", or policy=Policy(order="none") and a comment that order does not matter'
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry), fix=fix)


def _could_order(entry: EventEntry, facts: Facts) -> str:
    """The field that names the thing the fact is about."""
    own = (entry.aggregate or entry.service, "id")
    top = [field.name for field in facts.fields[entry.subject] if "." not in field.path]
    exact = [name for name in top if "_".join(words(name)) == "_".join(own)]
    plain = [name for name in top if words(name) == ("id",)]
    return next(iter(exact or plain), "")


def key_is_tenant(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        about_tenants = entry.aggregate == "tenant" or entry.service == "tenant"
        if entry.key and words(entry.key)[:1] == ("tenant",) and not about_tenants:
            sentence = f"{entry.subject} is ordered by {entry.key!r}: all facts of one tenant wait for each other"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def order_across_topics(facts: Facts) -> Iterator[Found]:
    consumers: dict[str, list[HandlerEntry]] = defaultdict(list)
    for handler in facts.document.handlers:
        consumers[handler.consumer].append(handler)
    for consumer, handlers in sorted(consumers.items()):
        for aggregate, topics in sorted(_topics_by_aggregate(handlers, facts).items()):
            if len(topics) > 1:
                sentence = (
                    f"the consumer {consumer} reads {aggregate} in order from {len(topics)} topics, and no broker keeps order "
                    f"across them: {', '.join(sorted(topics))}"
                )
                yield Found(where=consumer, sentence=sentence, place=facts.place_of(handlers[0]))


def _topics_by_aggregate(handlers: list[HandlerEntry], facts: Facts) -> dict[str, set[str]]:
    """By aggregate, the topics of its subjects that are read in order; those with a key alone."""
    topics = {s: topic for topic in facts.document.topics if topic.ordering for s in topic.subjects}
    found: dict[str, set[str]] = defaultdict(set)
    for handler in handlers:
        for reading in handler.reads if handler.reliability.order == "key" else ():
            if reading.subject in topics:
                found[".".join(reading.subject.split(".")[:-2])].add(topics[reading.subject].name)
    return found


RULES = (
    Rule(
        id="missing-key",
        severity=Severity.WARNING,
        title="An event about one thing, without a key",
        sees="An event without `key` whose payload has the id of its aggregate (`order_id` in `order.placed`), or an `id`.",
        why="Without a key there is no order and no number: a later fact may be overtaken by an earlier one, and on a topic that "
        "tenants share one busy tenant delays all.",
        fix="Declare the id of the aggregate as `key`.",
        seeds="A Delivery Guarantees; C Anti-Patterns and §13 (ordering); D §11.1",
        look=missing_key,
    ),
    Rule(
        id="key-is-tenant",
        severity=Severity.WARNING,
        title="Events that are ordered by tenant",
        sees="A `key` such as `tenant_id` on events that are not about tenants themselves.",
        why="All facts of one tenant are applied one after the other, and one that fails holds up the whole tenant.",
        fix="Order by the aggregate; the tenant is part of the ordering key already.",
        seeds="D §11.2; E8 in REQUIREMENTS",
        look=key_is_tenant,
    ),
    Rule(
        id="order-across-topics",
        severity=Severity.WARNING,
        title="A consumer that needs order across topics",
        sees="A consumer group whose ordered handlers read keyed facts of one aggregate from more than one topic, as "
        '`topics="subject"` makes them.',
        why="Each topic is in order for itself; which comes first between two of them is chance. A cancellation may be applied before "
        "the booking.",
        fix='Use `topics="aggregate"` in the service that owns the events, or `Policy(order="none")` where order does not matter.',
        seeds="D §2.1 with §11.1; REQUIREMENTS, settled conflict 2; C §13",
        look=order_across_topics,
    ),
)
