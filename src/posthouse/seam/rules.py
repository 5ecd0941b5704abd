"""Rules: what may be published at all, beyond what its type allows. Whoever breaks one learns its name before the commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import get_args

from posthouse.contracts import EventType
from posthouse.contracts.terms import Retention
from posthouse.errors import RuleBroken
from posthouse.events import PLATFORM
from posthouse.options import Options


class Rules(Options):
    """The lists that a platform keeps. In a pattern `*` stands for anything.

    Without any, a fact of the tenant `platform` and one that is declared `cross_tenant` is refused, and nothing else is: the
    other rules ask for what was said here, or by the broker."""

    platform: Collection[str] = ("*platform.*",)
    """Subjects that may belong to no tenant: may be published for the tenant `platform`."""
    cross_tenant: Collection[str] = ()
    """Topics that may hold facts that are declared `cross_tenant`: that are about, or for, several tenants."""
    region: str = ""
    """Where the broker keeps what is published; empty: where its own sheet says, and anywhere if that says nothing."""
    residency: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    """The regions that a residency stands for beside the one of its own name, as in `{"eu": ["europe-west1"]}`."""
    provenance: Collection[str] = ()
    """Subjects of facts that a model makes, beside those that name a field for it: they must have one."""
    retention: Mapping[str, Retention] = dataclasses.field(default_factory=dict)
    """The retention class that subjects must be declared with, by pattern; the first that fits counts."""

    def check(self, event_type: EventType[object], tenant: str, region: str = "", residency: str | None = None) -> None:
        """Raise RuleBroken with the first rule that a fact of this type breaks for this tenant. `region`: the broker's, where
        `self.region` does not say. `residency`: where the type names none."""
        if event_type.internal:
            return
        for rule, sentence in self._broken(event_type, tenant, self.region or region, residency):
            raise RuleBroken(rule, f"{event_type.name} {sentence}")

    def problems(self, event_type: EventType[object], region: str = "", residency: str | None = None) -> list[str]:
        """Every rule that facts of this type break by how it is declared, whomever they belong to. The rest as for `check`."""
        if event_type.internal:
            return []
        broken = self._broken_as_declared(event_type, self.region or region, residency)
        return [f"rule {rule!r}: {event_type.name} {sentence}" for rule, sentence in broken]

    def _broken(
        self, event_type: EventType[object], tenant: str, region: str, residency: str | None
    ) -> Iterator[tuple[str, str]]:
        if tenant == PLATFORM and not _listed(event_type.name, self.platform):
            yield (
                "platform",
                "belongs to no tenant here, and is not among the facts that may: list it in Rules(platform=[…]), as the answer to a "
                "frame of others that names no tenant must be, or publish it for the tenant that it is about",
            )
        yield from self._broken_as_declared(event_type, region, residency)

    def _broken_as_declared(
        self, event_type: EventType[object], region: str, residency: str | None
    ) -> Iterator[tuple[str, str]]:
        name, topic, terms = event_type.name, event_type.topic, event_type.terms
        resides = terms.residency or residency
        if terms.cross_tenant and not _listed(topic, self.cross_tenant):
            yield (
                "cross-tenant",
                f"is about several tenants, and {topic} is not on the list: add it to Rules(cross_tenant=[…]) after a review",
            )
        if resides and region and region not in (resides, *self.residency.get(resides, ())):
            yield (
                "residency",
                f"must not leave {resides!r}, and the broker is in {region!r}: publish it to a broker there, or say in "
                "Rules(residency={…}) which regions belong to it",
            )
        if event_type.provenance is None and _listed(name, self.provenance):
            yield "provenance", "is made by a model and does not say which: declare it with provenance=…"
        if terms.retention not in (known := get_args(Retention)):
            yield "retention", f"has the retention class {terms.retention!r}, which there is not: {', '.join(known)}"
        wanted = next((kept for pattern, kept in self.retention.items() if fnmatchcase(name, pattern)), terms.retention)
        if terms.retention != wanted:
            yield "retention", f"is declared with retention={terms.retention!r}, and the list says {wanted!r}"


def _listed(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
