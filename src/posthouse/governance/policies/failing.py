"""Rules about failure: what becomes of an event that cannot be applied, and for how long it is remembered."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.clock import backoff_horizon
from posthouse.governance.document import HandlerEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule

MOST_DELIVERIES = 50
MOST_SECONDS = 600.0
MOST_IN_FLIGHT = 10_000
DAY = 86_400.0


def skips_dead_events(facts: Facts) -> Iterator[Found]:
    ordered = {s for topic in facts.document.topics if topic.ordering for s in topic.subjects}
    for handler in facts.document.handlers:
        policy = handler.reliability
        read = sorted(reading.subject for reading in handler.reads if reading.subject in ordered)
        if policy.on_dead == "skip" and policy.order == "key" and read:
            sentence = f"{handler.name} goes on behind a dead {read[0]}: later facts of its key are applied as if it had never been"
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


def endless_retry(facts: Facts) -> Iterator[Found]:
    for handler in facts.document.handlers:
        if handler.reliability.max_attempts > MOST_DELIVERIES:
            sentence = f"{handler.name} tries an event {handler.reliability.max_attempts:,} times, over {_span(_horizon(handler))}"
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


def long_deadline(facts: Facts) -> Iterator[Found]:
    for handler in facts.document.handlers:
        if handler.reliability.deadline > MOST_SECONDS:
            sentence = f"one run of {handler.name} may take {handler.reliability.deadline:,.0f} s"
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


def no_back_pressure(facts: Facts) -> Iterator[Found]:
    bounds = {handler.service: handler.reliability.in_flight for handler in facts.document.handlers}
    for service, in_flight in sorted(bounds.items()):
        if in_flight > MOST_IN_FLIGHT:
            sentence = f"each consumer of {service} may accept {in_flight:,} events before it has applied one"
            yield Found(where=service, sentence=sentence)


def inbox_horizon(facts: Facts) -> Iterator[Found]:
    for handler in facts.document.handlers:
        remembered = facts.inbox_retention.get(handler.service)
        horizon = _horizon(handler) + facts.settings.redelivery
        if remembered is not None and remembered < horizon:
            sentence = (
                f"an event of {handler.name} may come again after {_span(horizon)}, and the inbox of {handler.service} "
                f"remembers {_span(remembered)}"
            )
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


def log_against_class(facts: Facts) -> Iterator[Found]:
    for log in facts.logs:
        if log.said < log.log:
            wrong = f"and the class of its events asks for {_span(log.log)}"
        elif log.said > log.archive:
            wrong = f"and the class of its events allows {_span(log.archive)} altogether"
        else:
            continue
        yield Found(where=log.topic, sentence=f"{log.topic} is kept {_span(log.said)} by the broker's URL, {wrong}")


def _horizon(handler: HandlerEntry) -> float:
    """The longest time between the first run and the last."""
    policy = handler.reliability
    return backoff_horizon(policy.max_attempts, policy.first_delay, policy.last_delay)


def _span(seconds: float) -> str:
    return f"{seconds / DAY:,.1f} days" if seconds >= DAY else f"{seconds:,.0f} s"


RULES = (
    Rule(
        id="skips-dead-events",
        severity=Severity.WARNING,
        title="An ordered handler that goes on without its dead events",
        sees='`Policy(on_dead="skip")` on a handler of events that have a key, with order.',
        why="The dead event is held and shown, but what came after it was applied to a state that lacks it; retrying it later applies "
        "it out of order.",
        fix='Leave `on_dead` at `"stop"`: only this key waits. Skip where each fact stands for itself, with `order="none"`.',
        seeds="C §10 and §13 (no DLQ strategy, ordering); A Delivery Guarantees; D §9.2",
        look=skips_dead_events,
    ),
    Rule(
        id="endless-retry",
        severity=Severity.WARNING,
        title="An event that is tried again and again",
        sees="More than 50 deliveries.",
        why="A poisoned event is tried for days before anybody looks, and its key waits all the while.",
        fix="Keep it at about seven deliveries; what does not work by then needs a person.",
        seeds="A Anti-Patterns (unbounded retry); C §10; D §9.2",
        look=endless_retry,
    ),
    Rule(
        id="long-deadline",
        severity=Severity.WARNING,
        title="A handler that may run for more than ten minutes",
        sees="A `deadline` of more than 600 seconds.",
        why="The database transaction stays open all the while; brokers take the event for lost and bring it again.",
        fix="Do the slow part outside: start it, and let a fact or a timer go on with it.",
        seeds="D §9.1 (acknowledgement within 60 or 600 s); B Failure 4",
        look=long_deadline,
    ),
    Rule(
        id="no-back-pressure",
        severity=Severity.WARNING,
        title="A consumer that accepts more than it can hold",
        sees="`in_flight` of a service with handlers above 10,000.",
        why="When handlers are slower than the topic, memory fills until the process is killed, and everything in flight comes again.",
        fix="Leave `in_flight` at its default of 1,000, and scale by running more copies.",
        seeds="B Failure 4; A Back-Pressure Handling",
        look=no_back_pressure,
    ),
    Rule(
        id="inbox-horizon",
        severity=Severity.ERROR,
        title="An inbox that forgets too early",
        sees="`inbox_retention` shorter than all retries of a handler and `redelivery` of the settings (7 days) together. At its start "
        "a service asks its real broker instead, and refuses.",
        why="An event that comes again after it was forgotten is applied twice.",
        fix="Raise `inbox_retention` (30 days unless given), or shorten the retries.",
        seeds="D §7.2; B Pattern 2; E §8",
        look=inbox_horizon,
    ),
    Rule(
        id="log-against-class",
        severity=Severity.WARNING,
        title="A log that contradicts the class of its events",
        sees="`retention` in the URL of a broker that keeps all topics alike (embedded, PostgreSQL, Redis, Pub/Sub), shorter than the "
        "class of an event wants the log, or longer than it is kept altogether, where `Settings(retention=…)` says what classes mean. "
        "Defaults of brokers are seen by `posthouse doctor`.",
        why="Consumers cannot go back as far as was promised; or facts lie in the log that should be gone.",
        fix="Say the same in both: `retention` of the URL, in seconds, or the classes.",
        seeds="D §13",
        look=log_against_class,
    ),
)
