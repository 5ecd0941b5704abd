"""Rules about rights: what is declared is allowed, and what is written down keeps something."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.trust.rights import Rights
from posthouse.trust.rights.identity import folded

LISTS: tuple[Literal["publish", "read", "replay"], ...] = ("publish", "read", "replay")


def rights_contradict(facts: Facts) -> Iterator[Found]:
    for rights in facts.rights:
        yield from _readers(facts, rights)
        yield from _publishers(facts, rights)
        yield from _strangers(facts, rights)
        yield from _replayers(facts, rights)
        yield from _approvers(rights)


def _readers(facts: Facts, rights: Rights) -> Iterator[Found]:
    topics = {subject: topic.name for topic in facts.document.topics for subject in topic.subjects}
    for handler in facts.document.handlers:
        party = facts.parties[handler.service]
        for topic in sorted({topics[reading.subject] for reading in handler.reads if reading.subject in topics}):
            if problem := rights.read_problem(party, topic):
                sentence = f"{handler.name} reads {topic}, and {problem}: consumer {handler.consumer} does not start"
                yield Found(where=handler.consumer, sentence=sentence, place=facts.place_of(handler))


def _publishers(facts: Facts, rights: Rights) -> Iterator[Found]:
    """In handlers, whose service is known; of other functions it is not."""
    services = {handler.name: handler.service for handler in facts.document.handlers}
    for publish in facts.code.publishes:
        entry, handler = facts.entry_of(publish), facts.in_transaction(publish.function)
        if entry is not None and handler in services:
            problem = rights.publish_problem(facts.parties[services[handler]], entry.topic)
            if problem:
                sentence = f"{handler} publishes {entry.subject}, and {problem}"
                yield Found(where=handler, sentence=sentence, place=publish.place)


def _strangers(facts: Facts, rights: Rights) -> Iterator[Found]:
    """A service in the list of other makers' accounts: the exports would let it say what the library refuses."""
    for pattern, accounts in rights.publish.items():
        for party in facts.parties.values():
            others = [t.name for t in facts.document.topics if fnmatchcase(t.name, pattern) and not party.owns(t.name)]
            if others and {party.name, party.full}.intersection(accounts):
                sentence = (
                    f"Rights(publish) lets {party.name} publish to {others[0]}, and a service says its own facts alone"
                )
                fix = "Take it off: that list is for accounts of other makers' tools, which the exports let publish."
                yield Found(where=others[0], sentence=sentence, fix=fix)


def _replayers(facts: Facts, rights: Rights) -> Iterator[Found]:
    """By name: a pattern means those of whom it fits that read."""
    for topic in facts.document.topics:
        listed = rights.of("replay", topic.name) or ()
        for party in facts.parties.values():
            if {party.name, party.full}.intersection(listed) and rights.read_problem(party, topic.name):
                sentence = f"Rights(replay) names {party.name} for {topic.name}, and it may not even read that"
                yield Found(where=topic.name, sentence=sentence)


def _approvers(rights: Rights) -> Iterator[Found]:
    names = {folded(name) for name in rights.approvers}
    if rights.grants and len(names) < 2 and not any(set(name) & set("*?[") for name in names):
        who = next(iter(rights.approvers), "nobody")
        sentence = f"grants are asked for, and {who} alone approves them: what {who} asks for nobody can approve"
        if not names:
            sentence = "grants are asked for, and nobody approves them: whatever needs one is refused"
        yield Found(where="approvers", sentence=sentence, fix="Name two people at least, or a pattern of names.")


def rights_keep_nothing(facts: Facts) -> Iterator[Found]:
    for rights in facts.rights:
        for name in LISTS:
            yield from _idle(facts, rights, name)
        for pattern in rights.tenants:
            if not any(party.is_in([pattern]) for party in facts.parties.values()):
                yield Found(where=pattern, sentence=f"Rights(tenants) names {pattern}, and no service is called so")


def _idle(facts: Facts, rights: Rights, name: Literal["publish", "read", "replay"]) -> Iterator[Found]:
    topics, taken = [topic.name for topic in facts.document.topics], set[str]()
    for pattern, listed in getattr(rights, name).items():
        fits = {topic for topic in topics if fnmatchcase(topic, pattern)}
        if not fits:
            yield Found(where=pattern, sentence=f"Rights({name}) names {pattern}, and no topic is called so")
        elif fits <= taken:
            sentence = f"Rights({name}) names {pattern}, and patterns before it fit all its topics: it is never asked"
            yield Found(where=pattern, sentence=sentence)
        taken |= fits
        if name == "publish":  # accounts of others, which nobody declares
            continue
        for one in listed:
            if not any(party.is_in([one]) for party in facts.parties.values()):
                sentence = f"Rights({name}) lists {one} for {pattern}, and no service is called so"
                yield Found(where=one, sentence=sentence)


RULES = (
    Rule(
        id="rights-contradict",
        severity=Severity.ERROR,
        title="Rights that contradict what is declared",
        sees="With `Rights`: handlers of a topic that their service may not read; handlers that publish another's fact; services on the "
        "list of other makers' publishers; services that may replay a topic and not read it; grants that one person alone may approve. "
        "What other functions than handlers publish is not seen, and of a catalogue in a file no rights are known.",
        why="It is refused in production: the consumer does not start, the fact is not committed, or nobody can let a person mend it.",
        fix="Say in `Rights` who does it, or take the declaration back.",
        seeds="B Security (topic ACLs)",
        look=rights_contradict,
    ),
    Rule(
        id="rights-keep-nothing",
        severity=Severity.WARNING,
        title="Rights that match nothing",
        sees="With `Rights`: patterns that fit no topic of the services that were named, or none that an earlier pattern leaves to them; "
        "names and patterns of services that fit none. Name all services: those that are left out fit nothing.",
        why="A misspelt pattern keeps nothing: whoever declares the topic reads it, and nobody is told.",
        fix="Write it as the topic or the service is called; take away what is gone.",
        seeds="B Security (topic ACLs)",
        look=rights_keep_nothing,
    ),
)
