"""Rules about models: what one decided says which, and how sure it was."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.document import EventEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import matches, words

ORIGIN = (
    ("the model", frozenset({("model",), ("model", "name"), ("model", "id")})),
    ("its version", frozenset({("model", "version"), ("version",), ("model", "revision")})),
    ("how sure it was", frozenset({("confidence",), ("score",), ("probability",), ("certainty",)})),
    (
        "what it was made from",
        frozenset({("source",), ("sources",), ("prompt", "hash"), ("input", "hash"), ("inputs",)}),
    ),
)
TELLING = frozenset(
    {("confidence",), ("prompt",), ("completion",), ("embedding",), ("model", "version"), ("inference", "id")}
)


def ai_without_provenance(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if not _is_made_by_a_model(entry, facts):
            continue
        known = {words(field.name) for field in facts.fields[entry.subject]}
        missing = [what for what, names in ORIGIN if not known & names]
        if missing:
            sentence = f"{entry.subject} was decided by a model and does not say {', '.join(missing)}"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def _is_made_by_a_model(entry: EventEntry, facts: Facts) -> bool:
    if any(matches(token, facts.settings.ai) for token in (entry.service, entry.aggregate or "")):
        return True
    return any(words(field.name) in TELLING for field in facts.fields[entry.subject])


RULES = (
    Rule(
        id="ai-without-provenance",
        severity=Severity.ERROR,
        title="A model's event without provenance",
        sees="Events whose service or aggregate `ai` of the settings names, or whose payload has `confidence`, `prompt`, `completion`, "
        "`embedding` or `model_version`, and whose payload lacks one of: model, version, confidence, source. They may stand in "
        "an object inside it.",
        why="Nobody can review a decision, or find all those of a model that turned out wrong.",
        fix="Add the provenance to the payload: `model`, `model_version`, `confidence`, `source`.",
        seeds="D §1.1, §4 and §15",
        look=ai_without_provenance,
    ),
)
