"""Drafts: schemas that clients send, understood together with what they refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.errors import SchemaError, did_you_mean
from posthouse.governance.registry import refusal
from posthouse.governance.registry.books import Books, Reference, Stored, live
from posthouse.governance.registry.comparing import Known
from posthouse.governance.registry.format import Format, Import
from posthouse.governance.registry.judge import Judge
from posthouse.governance.registry.ledger import Ledger

MOST_IMPORTS = 1_000
"""Schemas that one may refer to, directly or not."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A schema without an id."""

    type: str
    text: str
    fingerprint: str
    normal: str
    compiled: bytes
    references: tuple[Reference, ...]

    @property
    def known(self) -> Known:
        """As comparisons need it."""
        return Known("the new schema", self.type, self.compiled)

    def stored(self, id: int) -> Stored:
        """The same with an id."""
        return Stored(
            id=id,
            fingerprint=self.fingerprint,
            normal=self.normal,
            type=self.type,
            text=self.text,
            compiled=self.compiled,
            references=self.references,
        )


class Drafts:
    """Makes drafts. References are resolved from the ledger."""

    def __init__(self, ledger: Ledger, formats: Mapping[str, Format], judge: Judge) -> None:
        self._ledger = ledger
        self._formats = formats
        self._judge = judge

    async def draft(
        self, text: str | None, type: str | None, references: Sequence[Reference] | None, *, normalize: bool
    ) -> Draft:
        """Raises Refusal where the text, its type or a reference is wrong."""
        name = (type or "AVRO").upper()
        if name not in self._formats:
            raise refusal.invalid_schema(f"there is no schema type {type!r}.{did_you_mean(name, self._formats)}")
        if text is None or not text.strip():
            raise refusal.invalid_schema("Empty schema")
        links, imports = await self._resolved(name, references) if references else ((), [])
        try:
            reading = await self._judge.read(name, text, imports)
        except SchemaError as error:
            raise refusal.invalid_schema(str(error)) from error
        return Draft(
            type=name,
            text=reading.normal_text if normalize else reading.text,
            fingerprint=_fingerprint(name, reading.normal if normalize else reading.canonical, links),
            normal=_fingerprint(name, reading.normal, links),
            compiled=reading.compiled,
            references=links,
        )

    async def check_links(self, books: Books, links: Sequence[Reference]) -> None:
        """Raises Refusal when something that is referred to has been deleted meanwhile."""
        for link in links:
            await _target(books, link)

    async def _resolved(self, type: str, links: Sequence[Reference]) -> tuple[tuple[Reference, ...], list[Import]]:
        """The links with the numbers of their versions, and what they lead to."""
        for link in links:
            _check_name(link.name)
        async with self._ledger.reading() as session:
            books = Books(session)
            numbered = tuple([await _numbered(books, link) for link in links])
            return numbered, await _imports(books, type, numbered)


async def _imports(books: Books, type: str, links: Sequence[Reference]) -> list[Import]:
    """What the links lead to, directly or not, each after what it needs itself."""
    found: dict[str, Import] = {}
    waiting = [(link, False) for link in reversed(links)]
    while waiting:  # a version refers only to what was there before it, so the way always ends
        link, opened = waiting.pop()
        if link.name in found:
            continue
        target = await _target(books, link)
        if target.type != type:
            raise refusal.invalid_schema(f"the reference {link.name!r} leads to a schema of type {target.type}")
        if opened or not target.references:
            found[link.name] = Import(link.name, target.text)
        else:
            waiting += [(link, True), *((inner, False) for inner in reversed(target.references))]
        if len(found) + len(waiting) > MOST_IMPORTS:
            raise refusal.invalid_schema(f"it refers to more than {MOST_IMPORTS:,} schemas, directly or not")
    return list(found.values())


async def _numbered(books: Books, link: Reference) -> Reference:
    """-1 is the latest version."""
    versions = live(await books.versions(link.subject)) if link.version == -1 else []
    return msgspec.structs.replace(link, version=versions[-1].version) if versions else link


async def _target(books: Books, link: Reference) -> Stored:
    wanted = [v for v in live(await books.versions(link.subject)) if v.version == link.version]
    found = await books.schema(wanted[0].schema_id) if wanted else None
    if found is None:
        raise refusal.invalid_schema(
            f"the reference {link.name!r} leads to version {link.version} of subject {link.subject!r}, which is not there"
        )
    return found


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= 1_000 or any(ord(character) < 32 for character in name):
        raise refusal.invalid_schema("the name of a reference has 1 to 1,000 characters, and no control characters")


def _fingerprint(type: str, canonical: str, links: Sequence[Reference]) -> str:
    parts = [type, canonical, *(f"{link.name}\0{link.subject}\0{link.version}" for link in links)]
    return hashlib.sha256("\0\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
