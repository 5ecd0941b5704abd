"""Rules about flows: who waits for whom, what runs in circles, and what nobody hears."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.graph import awaits, cycles, flow, longest_paths
from posthouse.governance.policies.rule import Rule

MOST_HOPS = 2
MOST_STEPS = 3


def synchronous_chain(facts: Facts) -> Iterator[Found]:
    for way in longest_paths(awaits(facts.document), MOST_HOPS):
        sentence = f"{way[0]} waits for an answer over {len(way) - 1} hops: {' → '.join(way)}"
        yield Found(where=way[0], sentence=sentence)


def event_cycle(facts: Facts) -> Iterator[Found]:
    for way in cycles(flow(facts.document)):
        entry = facts.document.event(way[0])
        sentence = f"these events lead to each other without end: {' → '.join(way)}"
        yield Found(where=way[0], sentence=sentence, place=None if entry is None else facts.place_of(entry))


def publishes_what_it_reads(facts: Facts) -> Iterator[Found]:
    for handler in facts.document.handlers:
        for subject in sorted({reading.subject for reading in handler.reads}.intersection(handler.publishes)):
            sentence = f"{handler.name} publishes {subject} when it reads {subject}: each run leads to the next"
            yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


def long_choreography(facts: Facts) -> Iterator[Found]:
    for way in longest_paths(flow(facts.document), MOST_STEPS):
        sentence = f"{len(way) - 1} steps follow from {way[0]} with nobody who sees the whole: {' → '.join(way)}"
        yield Found(where=way[0], sentence=sentence)


def event_nobody_reads(facts: Facts) -> Iterator[Found]:
    read = {reading.subject for handler in facts.document.handlers for reading in handler.reads}
    for entry in facts.document.events:
        if entry.subject not in read:
            sentence = f"no handler of {', '.join(facts.document.services)} reads {entry.subject}"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def reads_what_nobody_says(facts: Facts) -> Iterator[Found]:
    said = {entry.subject for entry in facts.document.events}
    for handler in facts.document.handlers:
        for reading in handler.reads:
            if reading.subject not in said:
                sentence = f"{handler.name} reads {reading.subject}, which none of {', '.join(facts.document.services)} publishes"
                yield Found(where=handler.name, sentence=sentence, place=facts.place_of(handler))


RULES = (
    Rule(
        id="synchronous-chain",
        severity=Severity.WARNING,
        title="Services that wait for each other over more than two hops",
        sees="A service waits for another when that one, on a fact of the first, publishes a fact that the first has a handler for. "
        "Found where more than two such steps follow each other: A waits for B, B for C, C for D. It is read from what handlers "
        "declare (return annotations and `publishes=`); whether B needs C's answer before it gives its own, and calls over HTTP, "
        "cannot be seen.",
        why="The first is as available as all of them together, and a failure at the end shows as silence at the start.",
        fix="Let the service that owns the process ask each of the others itself, as a saga with deadlines and compensations.",
        seeds="D §1 and §15 (02 §15); A Anti-Patterns",
        look=synchronous_chain,
    ),
    Rule(
        id="event-cycle",
        severity=Severity.ERROR,
        title="Events that lead to each other in a circle",
        sees="Subjects that come back to themselves over handlers and what these declare to publish.",
        why="One event keeps the circle busy for ever, and every replay adds another one.",
        fix="Find the step that only repeats what is known, and let it publish nothing; or allow it with the condition that ends it.",
        seeds="C Anti-Patterns (event spaghetti)",
        look=event_cycle,
    ),
    Rule(
        id="publishes-what-it-reads",
        severity=Severity.ERROR,
        title="A handler that publishes the event that it reads",
        sees="A subject that stands among what a handler reads and among what it declares to publish.",
        why="Each run makes the next: the topic grows until somebody stops the service.",
        fix="Publish the new fact under its own name, or schedule the work with a timer.",
        seeds="C Anti-Patterns (event spaghetti); D §1.1 (one event is one fact)",
        look=publishes_what_it_reads,
    ),
    Rule(
        id="long-choreography",
        severity=Severity.INFO,
        title="A process of many steps that nobody owns",
        sees="More than three events that follow from each other over handlers, from the first that nothing leads to.",
        why="The process stands nowhere: no one can say how far it got, or undo it.",
        fix="Give it an owner: a saga in the service whose aggregate it is about.",
        seeds="A Saga Patterns (choreography below four steps); C §6; D §8.6",
        look=long_choreography,
    ),
    Rule(
        id="event-nobody-reads",
        severity=Severity.INFO,
        title="An event that nobody reads",
        sees="Events without a handler in the services that were named. Readers elsewhere are not seen.",
        why="Each event is a promise to keep: a schema that cannot change, a topic, a line in the catalogue.",
        fix="Name the service that reads it too; if there is none, do not publish it yet.",
        seeds="C §13 (over-eventification)",
        look=event_nobody_reads,
    ),
    Rule(
        id="reads-what-nobody-says",
        severity=Severity.INFO,
        title="A handler of an event that nobody publishes",
        sees="Handlers of subjects that no service that was named declares. Owners elsewhere are not seen.",
        why="A handler that waits for ever looks like one that has nothing to do.",
        fix="Name the owner's service too; if it is gone, remove the handler.",
        seeds="C Anti-Patterns (event spaghetti); D §2.4",
        look=reads_what_nobody_says,
    ),
)
