"""Two JSON Schemas, and what the change between them does to readers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from posthouse.governance.evolution.finding import Finding, Mode, Reader, Verdict, Weight, judge
from posthouse.governance.evolution.json_schema.building import Content, build
from posthouse.governance.evolution.json_schema.document import Document, escaped
from posthouse.governance.evolution.json_schema.evaluated import check_progress
from posthouse.governance.evolution.json_schema.explaining import Explainer, Gap, Step
from posthouse.governance.evolution.json_schema.nodes import Pool
from posthouse.governance.evolution.json_schema.proving import Prover, TooMuchWork
from posthouse.governance.evolution.json_schema.sequent import Nodes
from posthouse.governance.evolution.json_schema.witness import Finder
from posthouse.governance.evolution.json_schema.wording import words_for

MOST_CANDIDATES = 12
MOST_GUESSES = 60
MOST_STEPS = 20_000
STEPS_PER_GAP = 2_000
LARGEST_INTEGER = 2**63

TOO_MUCH = (
    "The schemas are too entangled to be compared within reason.",
    "Split unions, and give each branch a property with a `const` of its own.",
)


class Comparison:
    """One direction: may `reader` read all that was written by the other schema?"""

    def __init__(
        self, old: Document, new: Document, reader: Reader, pool: Pool, *, declared_only: bool = False
    ) -> None:
        writing, reading = (old, new) if reader is Reader.NEW else (new, old)
        self._writer, self._reader = writing.validator, reading.validator
        self._who = reader
        self._left: Nodes = frozenset(
            (build(writing, pool, Content.DECLARED if declared_only else Content.AS_WRITTEN),)
        )
        self._right: Nodes = frozenset(
            (build(reading, pool, Content.IGNORED if declared_only else Content.AS_WRITTEN),)
        )
        self._prover = Prover(pool)
        self._finder = Finder(self._prover, budget=MOST_STEPS)

    def findings(self) -> list[Finding]:
        """Nothing, where every value of the writer is proven to be one of the reader's."""
        try:
            if self._prover.prove(self._left, self._right):
                return []
            gaps = Explainer(self._prover).gaps(self._left, self._right)
        except (TooMuchWork, RecursionError):
            return self._with_a_guess([self._unexplained("too-much-work", *TOO_MUCH)])
        found: dict[tuple[str, str, str], Finding] = {}
        for gap in gaps:
            finding = self._finding(gap)
            place = (finding.path, finding.rule, finding.sentence)
            if place not in found or (finding.has_example and not found[place].has_example):
                found[place] = finding
        return self._with_a_guess(list(found.values()))

    def _finding(self, gap: Gap) -> Finding:
        said = words_for(gap, self._who)
        example = self._example(gap)
        return Finding(
            path=pointer(gap.path),
            rule=said.rule,
            breaks=self._who,
            sentence=said.sentence,
            way_out=said.way_out,
            weight=Weight.UNJUDGED if example is msgspec.UNSET else Weight.BREAKS,
            example=example,
        )

    def _example(self, gap: Gap) -> object:
        """A whole message that the writer may send and the reader refuses."""
        self._finder.allow(STEPS_PER_GAP)
        candidates = islice(self._messages(self._finder, gap), MOST_CANDIDATES)
        return next((message for message in candidates if self._refused(message)), msgspec.UNSET)

    def _messages(self, finder: Finder, gap: Gap) -> Iterator[object]:
        for value in islice(finder.values(gap.left, gap.right), MOST_CANDIDATES):
            yield from islice(_wrapped(finder, value, gap.steps), 2)

    def _refused(self, message: object) -> bool:
        """Sent by the writer, refused by the reader; formats are asserted on both sides."""
        try:
            return _writable(message) and self._writer.is_valid(message) and not self._reader.is_valid(message)
        except ValueError:
            return False

    def _with_a_guess(self, findings: list[Finding]) -> list[Finding]:
        """Where no gap could be shown, perhaps some message can show all the same that the change breaks."""
        if findings and any(finding.has_example for finding in findings):
            return findings
        self._finder.allow(STEPS_PER_GAP)
        for message in islice(self._finder.values(self._left, self._right), MOST_GUESSES):
            if self._refused(message):
                first = findings[0] if findings else self._unexplained("schema-narrowed", *UNEXPLAINED)
                return [msgspec.structs.replace(first, weight=Weight.BREAKS, example=message), *findings[1:]]
        return findings or [self._unexplained("unproven", *UNEXPLAINED)]

    def _unexplained(self, rule: str, sentence: str, way_out: str) -> Finding:
        return Finding(path="", rule=rule, breaks=self._who, sentence=sentence, way_out=way_out, weight=Weight.UNJUDGED)


UNEXPLAINED = (
    "It could not be proven that every message still fits.",
    "Make the change in smaller steps, or publish a new version of the event.",
)


def compare_meaning(old_text: str | bytes, new_text: str | bytes, mode: Mode) -> Verdict:
    """The verdict by containment, for all modes but ADDITIVE."""
    new = Document(new_text, "the new schema")
    if old_text == new_text:
        check_progress(new)
        return Verdict.of(())
    old = Document(old_text, "the old schema")
    pool = Pool()
    return judge(mode, lambda reader: Verdict.of(Comparison(old, new, reader, pool).findings()))


def pointer(path: tuple[str, ...]) -> str:
    """A JSON Pointer."""
    return "".join(f"/{escaped(step)}" for step in path)


def _wrapped(finder: Finder, value: object, steps: tuple[Step, ...]) -> Iterator[object]:
    """Messages that hold the value at the end of the steps."""
    if not steps:
        yield value
        return
    last = steps[-1]
    for name in islice(finder.names(last.name, last.naming), 2):
        for container in islice(finder.holding(last.around, name, value), 2):
            yield from _wrapped(finder, container, steps[:-1])


def _writable(value: object) -> bool:
    """Whether every JSON library can write it: no integers beyond 64 bits."""
    if isinstance(value, dict):
        return all(map(_writable, value.values()))
    if isinstance(value, list):
        return all(map(_writable, value))
    return not isinstance(value, int) or -LARGEST_INTEGER <= value < LARGEST_INTEGER
