"""Rules about names: an event is a fact, and its subject says which."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.errors import SubjectError
from posthouse.events.subject import Subject
from posthouse.governance.document import EventEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import one_of, words

NO_NAMES = one_of("data event info payload stuff")
VAGUE = one_of("altered changed handled modified mutated processed touched updated")
ASKING = one_of("asked fetch fetched get query queried request")
ANSWERING = one_of("answered replied reply responded response")
REPLY_FIELDS = one_of("callback_topic reply_queue reply_to reply_topic response_queue response_topic")


def bad_subject(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if why := _why_bad(entry, facts.settings.not_past):
            yield Found(where=entry.subject, sentence=why, place=facts.place_of(entry))


def _why_bad(entry: EventEntry, not_past: tuple[str, ...]) -> str:
    try:
        Subject.parse(entry.subject, namespace=entry.namespace, exceptions=not_past)
    except SubjectError as error:
        return str(error)
    noun = entry.aggregate or ""
    if empty := NO_NAMES.intersection((*words(noun), *words(entry.verb))):
        return f"{entry.subject!r}: {min(empty)!r} says nothing; name the thing and what happened to it"
    if noun and entry.verb.startswith(f"{noun}_"):
        shorter = entry.subject.replace(entry.verb, entry.verb.removeprefix(f"{noun}_"))
        return f"{entry.subject!r} names {noun!r} twice; write {shorter!r}"
    return ""


def vague_verb(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if entry.verb in VAGUE:
            sentence = f"{entry.subject} says that something was {entry.verb}, not what happened"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def event_as_rpc(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if why := _why_rpc(entry, facts):
            yield Found(where=entry.subject, sentence=f"{entry.subject} {why}", place=facts.place_of(entry))


def _why_rpc(entry: EventEntry, facts: Facts) -> str:
    spoken = words(entry.verb)
    if asked := (ASKING | ANSWERING).intersection(spoken):
        return f"is a question or an answer ({sorted(asked)[0]!r}), not a fact"
    if fields := [f.path for f in facts.fields[entry.subject] if "_".join(words(f.name)) in REPLY_FIELDS]:
        return f"says where to send the answer ({fields[0]})"
    if "requested" in spoken and (answer := _answer(entry, facts)):
        return f"asks, and {entry.service} itself waits for the answer {answer}"
    return ""


def _answer(entry: EventEntry, facts: Facts) -> str:
    """What the readers of a request publish and its author reads. A saga may: it remembers what it asked, has a deadline, and
    blocks nobody."""
    sagas = {saga.consumer for saga in facts.document.sagas}
    answers = {s for h in facts.document.handlers if _reads(h.reads, entry.subject) for s in h.publishes}
    own = [h for h in facts.document.handlers if h.service == entry.service]
    heard = {r.subject for h in own for r in h.reads}
    by_sagas = {r.subject for h in own if h.consumer in sagas for r in h.reads}
    return min(answers & heard - by_sagas, default="")


def _reads(reads: tuple[object, ...], subject: str) -> bool:
    return any(getattr(reading, "subject", None) == subject for reading in reads)


def undescribed_event(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if not entry.description.strip():
            sentence = f"{entry.subject} has no docstring: nobody can look up what it means"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


RULES = (
    Rule(
        id="bad-subject",
        severity=Severity.ERROR,
        title="A subject that breaks the grammar, or says nothing",
        sees="Subjects that do not parse as `[namespace.]service.[aggregate.]verb_past.vN`; names such as `order.event_created` or "
        "`order.data_stored`; an aggregate that stands in its own verb. Verbs that are no past tense are refused when they are "
        "declared, unless `Service(…, not_past=[…])` lists them; in a catalogue of others they are found here, unless `not_past` does.",
        why="Topics, permissions, schemas and metrics are named after the subject; once published it can never be changed.",
        fix="Name the thing and what happened to it, in the past tense; `not_past` in the settings lists facts that are none.",
        seeds="A, Event Design, Naming; C §2; D §3.1",
        look=bad_subject,
    ),
    Rule(
        id="vague-verb",
        severity=Severity.INFO,
        title="An event that says that something changed, not what happened",
        sees="The verbs `changed`, `updated`, `modified`, `processed` and their like, when they stand alone.",
        why="Each consumer has to compare states to find out what happened, and each does so differently.",
        fix="Say the business fact: `address_corrected`, `dates_changed`, one event for each thing that can happen.",
        seeds="C §2 (never `PaymentUpdate`, `UserChanged`); D §1.1",
        look=vague_verb,
    ),
    Rule(
        id="event-as-rpc",
        severity=Severity.ERROR,
        title="An event that is a question or an answer",
        sees="Verbs such as `get`, `query`, `fetched`, `replied`, `response`; payload fields such as `reply_to`; a `…requested` event "
        "whose reader publishes something that its author reads. A `…requested` event that nobody answers is a fact, and so is one "
        "whose answer a saga of its author reads.",
        why="It is a synchronous call with more latency: the author blocks, the reader must be up, and a missing answer is no error "
        "that anybody sees.",
        fix="Call an API for an answer; publish the fact when it has happened; where the answer takes its time, let a saga wait for it.",
        seeds="C Anti-Patterns, C §1 and §13; D §15; A Anti-Patterns",
        look=event_as_rpc,
    ),
    Rule(
        id="undescribed-event",
        severity=Severity.INFO,
        title="An event without a description",
        sees="A payload class without a docstring.",
        why="The catalogue is where other teams look before they subscribe; a name alone leaves them to guess.",
        fix="Write one sentence as the docstring of the class: when does this happen?",
        seeds="C Quality Standards; D §3.2 (each event has a trigger)",
        look=undescribed_event,
    ),
)
