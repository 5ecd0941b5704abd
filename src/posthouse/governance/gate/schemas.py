"""Schemas in the gate: changed ones are compared; new, removed and renamed ones are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date

from posthouse.contracts.lock import LOCK
from posthouse.contracts.schema import Schema
from posthouse.errors import SchemaError
from posthouse.governance.bundle import Bundle, FrozenSchema
from posthouse.governance.evolution import Finding, Mode, Verdict, Weight
from posthouse.governance.gate.objection import Objection, Severity
from posthouse.governance.gate.readers import Readers
from posthouse.governance.semver import numbers, raised, text_of

Compare = Callable[[Schema, Schema, Mode], Verdict]
"""How two schemas of one format are compared; it may raise SchemaError."""

SEVERITIES = {Weight.BREAKS: Severity.ERROR, Weight.UNJUDGED: Severity.ERROR, Weight.NOTE: Severity.NOTE}
UNPROVEN = ", perhaps: it could not be proven that it does not"
_SAID_BETTER = "Publish a new version of the event beside this one."


class SchemaChanges:
    """What happened to the schemas between two bundles."""

    def __init__(self, before: Bundle, after: Bundle, readers: Readers, retired: Mapping[str, date]) -> None:
        self._before, self._after, self._readers, self._retired = before, after, readers, retired
        self._was = {_stem(path): frozen for path, frozen in before.schemas.items()}
        self._is = {_stem(path): frozen for path, frozen in after.schemas.items()}

    @property
    def changed(self) -> list[tuple[FrozenSchema, FrozenSchema]]:
        """Versions that mean something else than they did."""
        both = [(self._was[stem], self._is[stem]) for stem in sorted(self._was.keys() & self._is.keys())]
        return [(old, new) for old, new in both if old.schema != new.schema]

    def objections(self, mode: Mode, compare: Compare) -> Iterator[Objection]:
        """All that speaks against them."""
        for old, new in self.changed:
            yield from self._changed(old, new, mode, compare)
        for stem in sorted(self._was.keys() & self._is.keys()):
            if self._was[stem].schema == self._is[stem].schema:
                yield from self._not_raised(self._was[stem], self._is[stem])
        for stem in sorted(self._was.keys() - self._is.keys()):
            yield from self._removed(self._was[stem])
        for stem in sorted(self._is.keys() - self._was.keys()):
            yield from self._added(self._is[stem])
        yield from self._edited()

    def _changed(self, old: FrozenSchema, new: FrozenSchema, mode: Mode, compare: Compare) -> Iterator[Objection]:
        if old.schema.format != new.schema.format:
            sentence = f"v{new.version} was {old.schema.format} and is {new.schema.format} now: nobody can read both."
            yield self._about(new, "format-changed", sentence, _next_version(self._subject(new), new.version), old)
            return
        try:
            verdict = compare(old.schema, new.schema, mode)
        except SchemaError as error:
            sentence = f"The two forms of v{new.version} cannot be compared: {error}"
            yield self._about(new, "schema-unusable", sentence, "Mend the schema, or leave it as it was.", old)
            return
        for finding in verdict.findings:
            yield self._found(old, new, finding)
        if all(finding.weight is Weight.NOTE for finding in verdict.findings):
            yield from self._not_raised(old, new)

    def _not_raised(self, old: FrozenSchema, new: FrozenSchema) -> Iterator[Objection]:
        """Of a change that may pass; of one that may not, or that the lock does not know, it is enough to say that."""
        was, now = self._before.lock.schemas.get(old.path), self._after.lock.schemas.get(new.path)
        if was is None or now is None or now.hash != new.schema.hash:
            return
        before, after = numbers(was.semver, old.version), numbers(now.semver, new.version)
        least = raised(before, schema=old.schema != new.schema, words=old.words != new.words)
        if after < least or after[0] != new.version:
            sentence = (
                f"Its version is {text_of(after)} and was {text_of(before)}; with this change it is {text_of(least)}."
            )
            way_out = f"Set its semver in {LOCK} to {text_of(least)}; `posthouse catalog freeze` does it when the code changes."
            yield self._about(new, "version-not-raised", sentence, way_out, old)

    def _found(self, old: FrozenSchema, new: FrozenSchema, finding: Finding) -> Objection:
        subject = self._subject(new)
        way_out = finding.way_out.replace(_SAID_BETTER, "").strip()
        if finding.weight is not Weight.NOTE:
            way_out = f"{way_out} {_next_version(subject, new.version)}".strip()
        return Objection(
            rule=finding.rule,
            severity=SEVERITIES[finding.weight],
            subject=subject,
            file=new.path,
            sentence=finding.sentence,
            way_out=way_out,
            change=f"{old.schema.hash} {new.schema.hash}",
            path=finding.path,
            breaks=f"{finding.breaks.value}{UNPROVEN if finding.weight is Weight.UNJUDGED else ''}",
            example=finding.example,
            touched=self._readers.of(subject, finding.path),
        )

    def _removed(self, old: FrozenSchema) -> Iterator[Objection]:
        if self._subject(old) in self._retired:
            return
        newer = [frozen for frozen in self._is.values() if frozen.unversioned == old.unversioned]
        came = [frozen for frozen in newer if frozen.version > old.version and _stem(frozen.path) not in self._was]
        if came:
            sentence = f"v{came[0].version} takes the place of v{old.version}, which its consumers still read."
            way_out = (
                f"Keep v{old.version} beside v{came[0].version} and publish both until nobody reads v{old.version}."
            )
            yield self._about(old, "dual-publish-missing", sentence, way_out, None)
            return
        way_out = f"Bring {old.path} back; `posthouse schema retire {self._subject(old)}` lets it go once seven days were quiet."
        if newer:
            sentence = f"v{old.version} is no longer there; other versions are."
            yield self._about(old, "version-removed", sentence, way_out, None)
        else:
            yield self._about(old, "subject-removed", "It is no longer there, in any version.", way_out, None)

    def _added(self, new: FrozenSchema) -> Iterator[Objection]:
        """A first version touches nobody."""
        older = [frozen for frozen in self._is.values() if _precedes(frozen, new) and _stem(frozen.path) in self._was]
        if not older:
            return
        last = max(older, key=lambda frozen: frozen.version)
        beside = self._published_beside(self._subject(last), self._subject(new))
        if beside:
            rule, sentence = "version-added", f"v{new.version} is new, with v{last.version} published beside it."
            way_out = (
                f"Tell those who read v{last.version}; keep both for two weeks at least, and until nobody reads it."
            )
        else:
            rule = "dual-publish-missing"
            sentence = f"v{new.version} is new, and v{last.version} is not published beside it: its readers would hear nothing."
            way_out = (
                f"Declare how a v{new.version} becomes a v{last.version}, with @service.downcast, and freeze again."
            )
        yield Objection(
            rule=rule,
            severity=Severity.NOTE if beside else Severity.ERROR,
            subject=self._subject(new),
            file=new.path,
            sentence=sentence,
            way_out=way_out,
            change=f"- {new.schema.hash}",
            touched=self._readers.of(self._subject(last)),
        )

    def _published_beside(self, old: str, new: str) -> bool:
        """Whether each `new` is also said as `old`, in one step or several."""
        beside = {locked.subject: locked.beside for locked in self._after.lock.schemas.values()}
        seen: set[str] = set()
        at: str | None = old
        while at is not None and at != new and at not in seen:
            seen.add(at)
            at = beside.get(at)
        return at == new

    def _edited(self) -> Iterator[Objection]:
        for path, frozen in sorted(self._after.schemas.items()):
            locked = self._after.lock.schemas.get(path)
            if locked is None or locked.hash != frozen.schema.hash:
                sentence = f"The file and {LOCK} do not say the same: one was edited by hand, or merged badly."
                way_out = "Change the code, run `posthouse catalog freeze` and commit the result."
                yield self._about(frozen, "lock-differs", sentence, way_out, None)

    def _about(
        self, frozen: FrozenSchema, rule: str, sentence: str, way_out: str, old: FrozenSchema | None
    ) -> Objection:
        """An error about an event as a whole."""
        subject = self._subject(frozen)
        return Objection(
            rule=rule,
            severity=Severity.ERROR,
            subject=subject,
            file=frozen.path,
            sentence=sentence,
            way_out=way_out,
            change=f"{old.schema.hash if old else '-'} {frozen.schema.hash}",
            touched=self._readers.of(subject),
        )

    def _subject(self, frozen: FrozenSchema) -> str:
        locked = self._after.lock.schemas.get(frozen.path) or self._before.lock.schemas.get(frozen.path)
        return locked.subject if locked is not None else _stem(frozen.path).replace("/", ".")


def _stem(path: str) -> str:
    return path.rpartition(".")[0]


def _precedes(one: FrozenSchema, other: FrozenSchema) -> bool:
    return one.unversioned == other.unversioned and one.version < other.version


def _next_version(subject: str, version: int) -> str:
    name = f"{subject.rpartition('.')[0]}.v{version + 1}"
    return (
        f"If you need it as it is: leave v{version} as it was, declare {name} beside it, and publish both until nobody reads "
        f"v{version}."
    )
