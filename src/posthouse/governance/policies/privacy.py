"""Rules about people: what says something about a person is marked, and what opens something stays at home."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import is_personal, is_secret

SPEAKING = frozenset({"string", "integer", "object", "array"})


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
