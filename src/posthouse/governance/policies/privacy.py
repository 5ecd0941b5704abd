"""Rules about people: what says something about a person is marked, and what opens something stays at home."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from posthouse.governance.policies.code import Identified
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import is_personal, is_secret, one_of, words

SPEAKING = frozenset({"string", "integer", "object", "array"})
_HASHED = one_of("digest fingerprint hash hashed hmac")


def personal_data_unmarked(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        declared = facts.classes.get(entry.subject)
        if declared is None:
            continue
        for field in facts.fields[entry.subject]:
            if is_personal(field.name) and field.kinds & SPEAKING and not declared.is_marked(field.path):
                sentence = f"{entry.subject}: {field.path} sounds personal and is not marked as such"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def secret_in_payload(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        for field in facts.fields[entry.subject]:
            if is_secret(field.name) and field.kinds & SPEAKING:
                sentence = f"{entry.subject}: {field.path} opens something, and every reader of the topic gets it"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def personal_data_in_key(facts: Facts) -> Iterator[Found]:
    for one in facts.identifiers:
        if how := _how_personal(one.field.rpartition(".")[2], marked=one.marked):
            sentence, place = f"{one.role} {one.field!r}, which {how}", facts.code.declarations.get(one.owner)
            yield Found(where=one.where, sentence=sentence, place=place, severity=_weight(marked=one.marked))
    for entry in facts.document.events:
        if entry.subject not in facts.classes and entry.key and (how := _how_personal(entry.key, marked=False)):
            sentence = f"{entry.subject} is ordered by {entry.key!r}, which {how}"
            yield Found(where=entry.subject, sentence=sentence, severity=_weight(marked=False))
    everywhere = _marked_names(facts, facts.classes)
    for said in facts.code.identified:
        yield from _identified(said, facts, everywhere)


def _identified(said: Identified, facts: Facts, everywhere: frozenset[str]) -> Iterator[Found]:
    entry = facts.entry_of(said)
    own = _marked_names(facts, [entry.subject]) if entry is not None and entry.subject in facts.classes else frozenset()
    here = frozenset(field.name for field in facts.fields[entry.subject]) if entry is not None else frozenset()
    known = own | (everywhere - here)
    for name in said.names:
        marked = name in known
        if how := _how_personal(name, marked=marked):
            option = said.option.replace("_", " ")
            where = said.function if entry is None else entry.subject
            sentence = f"{said.function} makes the {option} of {name!r}, which {how}"
            yield Found(where=where, sentence=sentence, place=said.place, severity=_weight(marked=marked))


def _marked_names(facts: Facts, subjects: Iterable[str]) -> frozenset[str]:
    """Names of fields that are marked wherever these events have them."""
    marked: set[str] = set()
    plain: set[str] = set()
    for subject in subjects:
        declared = facts.classes[subject]
        marked |= declared.marked
        plain |= {field.name for field in facts.fields.get(subject, ()) if not declared.is_marked(field.path)}
    return frozenset(marked - plain)


def _how_personal(name: str, *, marked: bool) -> str:
    if marked:
        return "is marked as personal"
    return "sounds personal" if is_personal(name) and not _HASHED.intersection(words(name)) else ""


def _weight(*, marked: bool) -> Severity:
    """What somebody marked is certain, a name is a question."""
    return Severity.ERROR if marked else Severity.WARNING


RULES = (
    Rule(
        id="personal-data-unmarked",
        severity=Severity.WARNING,
        title="Personal data without a class",
        sees='Fields such as `email`, `phone`, `passport`, `guest_name` or `date_of_birth` that are not `Annotated[…, Personal("…")]`. '
        "The mark covers everything inside the field.",
        why="What nobody marked is neither stripped before it leaves the tenant nor erased when the person asks.",
        fix='Mark the field with its class, as `email: Annotated[str, Personal("contact")]`, or leave it out.',
        seeds="D §12; REQUIREMENTS T7 and E10; B Security",
        look=personal_data_unmarked,
    ),
    Rule(
        id="personal-data-in-key",
        severity=Severity.ERROR,
        title="Personal data in a key, a correlation or another identifier",
        sees="A field that is marked `Personal`, as the `key` of an event or of an aggregate's stream, or as the id by which a saga is "
        "known or found; and in `idempotency_key=` or `correlation=` of `publish`, `outbox.add`, `transaction` and their like. Only a "
        "warning where the name alone sounds personal, also in `about=` and `of=`, which refuse marked fields themselves. In code, "
        "names are compared: an alias of another name, and what a function makes of a value, are not seen.",
        why="Identifiers stay readable wherever the fact goes: in the outbox, the broker, the log and the console. They are not "
        "encrypted, and no erasure reaches them.",
        fix="Name things by an id that says nothing, as `guest_id`, and leave what is personal in marked fields.",
        seeds="D §12; REQUIREMENTS T7 and E10; B Security",
        look=personal_data_in_key,
    ),
    Rule(
        id="secret-in-payload",
        severity=Severity.ERROR,
        title="A secret in a payload",
        sees="Fields such as `password`, `api_key`, `access_token`, `card_number`, `cvv` or `key_code`.",
        why="The outbox, the broker, the archive and every consumer keep a copy for years.",
        fix="Send a reference, and let the one who needs the secret fetch it with his own rights.",
        seeds="B Security; D §12 (payment details are stripped)",
        look=secret_in_payload,
    ),
)
