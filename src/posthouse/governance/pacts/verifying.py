"""Verifying: samples, decoders and expectations against the schemas of producers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from posthouse.contracts.payload import PayloadType
from posthouse.errors import ContractError, SchemaError
from posthouse.governance.evolution import Finding, Reader
from posthouse.governance.evolution.json_schema.comparing import Comparison
from posthouse.governance.evolution.json_schema.document import Document
from posthouse.governance.evolution.json_schema.nodes import Pool
from posthouse.governance.examples import examples, fullest
from posthouse.governance.pacts.breach import Breach
from posthouse.governance.pacts.expectation import Expectation

_WORDS = {
    "required": "It needs this field, and the producer may leave it out.",
    "type": "It does not take every type that the producer may send.",
    "values": "It does not know every value that the producer may send.",
    "union": "It does not know every shape that the producer may send.",
}
_LIMITS = "It is stricter here than the producer."


def verify_sample(who: str, subject: str, schema: str, message: object) -> Iterator[Breach]:
    """Whether a message that somebody wrote down is one that the schema takes."""
    for error in Document(schema, subject).validator.iter_errors(message):
        path = "".join(f"/{step}" for step in error.instance_path)
        yield Breach(kind="sample", who=who, subject=subject, sentence=f"{error.message}.", path=path, example=message)


def verify_decoder(subject: str, schema: str, payload: PayloadType[object]) -> Iterator[Breach]:
    """Whether the code reads examples of what a schema says."""
    for message in examples(schema):
        try:
            payload.decode(msgspec.json.encode(message))
        except ContractError as error:
            who = payload.cls.__name__
            yield Breach(kind="decoder", who=who, subject=subject, sentence=f"{error}.", example=message)


def verify_expectation(one: Expectation, schema: str) -> Iterator[Breach]:
    """Whether a consumer can read all that a producer's schema lets it send, and whether what it expects can come at all."""
    try:
        writer, reader = Document(schema, "the producer's schema"), Document(one.schema, "the consumer's schema")
        findings = Comparison(writer, reader, Reader.NEW, Pool(), declared_only=True).findings()
    except SchemaError as error:
        yield Breach(kind="consumer", who=one.who, subject=one.subject, sentence=f"{error}.")
        return
    for finding in findings:
        yield Breach(
            kind="consumer",
            who=one.who,
            subject=one.subject,
            sentence=_sentence(finding),
            path=finding.path,
            example=finding.example,
        )
    yield from _impossible(one, schema, writer)


def _sentence(finding: Finding) -> str:
    said = _WORDS.get(finding.rule.partition("-")[0], _LIMITS)
    return said if finding.has_example else f"{said} This could be neither proven nor shown by an example."


def _impossible(one: Expectation, schema: str, writer: Document) -> Iterator[Breach]:
    """The expected message laid over one of the producer's must still be one of its own."""
    if one.contents is msgspec.UNSET:
        return
    whole = fullest(schema)
    if whole is msgspec.UNSET:
        return
    message = _laid_over(whole, one.contents)
    for error in writer.validator.iter_errors(message):
        path = "".join(f"/{step}" for step in error.instance_path)
        sentence = f"It expects what the producer never sends: {error.message}."
        yield Breach(
            kind="consumer", who=one.who, subject=one.subject, sentence=sentence, path=path, example=one.contents
        )


def _laid_over(below: object, above: object) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: _laid_over(below.get(name), part) for name, part in above.items()}}
    return above
