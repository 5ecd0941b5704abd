"""Pact files: expectations as the message pacts of Pact's specification, version 3, which its own tools read and write.

One file for each pair of consumer and provider. The subject stands in `metaData`, and so does the schema by which the
consumer reads; tools that do not know it pass over it, and a file without it is judged by its contents and matchers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from posthouse.contracts.normal import canonical
from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE
from posthouse.governance.examples import smallest
from posthouse.governance.pacts.expectation import Expectation
from posthouse.governance.pacts.matchers import literal, rules_in, schema_of

SPECIFICATION = "3.0.0"
SUBJECT_NAMES = ("subject", "type", "ce-type", "ce_type")
SCHEMA = "posthouse-schema"
HANDLER = "posthouse-handler"


class _Named(msgspec.Struct):
    name: str


class _Message(msgspec.Struct):
    description: str
    contents: object = None
    metaData: dict[str, object] = {}
    metadata: dict[str, object] = {}
    matchingRules: dict[str, object] = {}

    @property
    def about(self) -> Mapping[str, object]:
        """Both spellings are found."""
        return {**self.metadata, **self.metaData}


class _Pact(msgspec.Struct):
    consumer: _Named
    provider: _Named
    messages: list[_Message] | None = None


def pacts_of(expectations: Iterable[Expectation]) -> dict[str, bytes]:
    """Files by name, the same bytes for the same expectations."""
    pairs: dict[tuple[str, str], list[Expectation]] = {}
    for one in expectations:
        pairs.setdefault((one.consumer, one.provider), []).append(one)
    return {
        f"{consumer}-{provider}.json": _file(consumer, provider, found) for (consumer, provider), found in pairs.items()
    }


def read_pact(name: str, text: bytes) -> list[Expectation]:
    """What a file expects. Raises ConfigurationError, which names the file and the message."""
    try:
        pact = msgspec.json.decode(text, type=_Pact)
    except UNREADABLE as error:
        raise ConfigurationError(f"{name} is not a pact: {error}") from error
    if pact.messages is None:
        raise ConfigurationError(f"{name} holds no messages: message pacts of version 3 are read, and no others")
    problems: list[str] = []
    found = []
    for message in pact.messages:
        try:
            found.append(_expectation(pact, message))
        except ConfigurationError as error:
            problems += [f"{name}, {message.description!r}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigurationError(*problems)
    return found


def _expectation(pact: _Pact, message: _Message) -> Expectation:
    about = message.about
    subject = next((about[name] for name in SUBJECT_NAMES if isinstance(about.get(name), str)), None)
    if not isinstance(subject, str):
        raise ConfigurationError(f"its metaData names no event: give it {SUBJECT_NAMES[0]!r}")
    body = message.matchingRules.get("body", {})
    own = about.get(SCHEMA)
    rules = rules_in(body if isinstance(body, dict) else {})
    derived = schema_of(message.contents, rules)
    return Expectation(
        consumer=pact.consumer.name,
        handler=str(about.get(HANDLER, message.description)),
        provider=pact.provider.name,
        subject=subject,
        schema=canonical(own if isinstance(own, dict) else derived),
        contents=literal(message.contents, rules),
    )


def _file(consumer: str, provider: str, expectations: Iterable[Expectation]) -> bytes:
    messages = [_message(one) for one in sorted(expectations, key=lambda one: (one.subject, one.handler))]
    pact = {
        "consumer": {"name": consumer},
        "provider": {"name": provider},
        "messages": messages,
        "metadata": {"pactSpecification": {"version": SPECIFICATION}},
    }
    return (json.dumps(pact, indent=2, ensure_ascii=False) + "\n").encode()


def _message(one: Expectation) -> dict[str, object]:
    contents = smallest(one.schema)
    if contents is msgspec.UNSET:
        raise ConfigurationError(f"{one.who}: no example of {one.subject} could be made from what it reads")
    return {
        "description": f"{one.handler} reads {one.subject}",
        "contents": contents,
        "metaData": {
            "contentType": "application/json",
            SUBJECT_NAMES[0]: one.subject,
            HANDLER: one.handler,
            SCHEMA: json.loads(one.schema),
        },
        "matchingRules": {"body": dict(sorted(_rules(contents, "$").items()))},
    }


def _rules(value: object, place: str) -> dict[str, object]:
    """A matcher for each value that stands for others of its type."""
    if isinstance(value, dict):
        return {at: rule for name, part in value.items() for at, rule in _rules(part, f"{place}['{name}']").items()}
    if isinstance(value, list):
        inner = _rules(value[0], f"{place}[*]") if value else {}
        return {place: _rule("type"), **inner}
    kind = "integer" if isinstance(value, int) and not isinstance(value, bool) else "null" if value is None else "type"
    return {place: _rule(kind)}


def _rule(match: str) -> dict[str, object]:
    return {"combine": "AND", "matchers": [{"match": match}]}
