"""Books: what a registry knows, read and written in one transaction of its ledger. No rule is decided here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.governance.registry.ledger import Row, Session

GLOBAL = ""
"""The subject of what holds for all."""

# A schema by its id.
SCHEMA = "SELECT id, fingerprint, normal, type, text, compiled FROM posthouse_registry.schemas WHERE id = $1"

# The id of a schema that is there already.
ID_OF = "SELECT id FROM posthouse_registry.schemas WHERE fingerprint = $1"

# What a schema refers to.
LINKS = "SELECT name, subject, version FROM posthouse_registry.links WHERE schema_id = $1 ORDER BY place"

# Who refers to a version, with whether any live version still has that schema.
REFERRERS = """
SELECT DISTINCT l.schema_id, v.deleted FROM posthouse_registry.links l
JOIN posthouse_registry.versions v ON v.schema_id = l.schema_id
WHERE l.subject = $1 AND l.version = $2 ORDER BY l.schema_id
"""

# The versions of a subject, oldest first.
VERSIONS = """
SELECT v.subject, v.version, v.schema_id, v.deleted, s.normal
FROM posthouse_registry.versions v JOIN posthouse_registry.schemas s ON s.id = v.schema_id
WHERE v.subject = $1 ORDER BY v.version
"""

# Where a schema is used.
USES = """
SELECT v.subject, v.version, v.schema_id, v.deleted, s.normal
FROM posthouse_registry.versions v JOIN posthouse_registry.schemas s ON s.id = v.schema_id
WHERE v.schema_id = $1 ORDER BY v.subject, v.version
"""

# Every version of every subject.
ALL_VERSIONS = """
SELECT v.subject, v.version, v.schema_id, v.deleted, s.normal
FROM posthouse_registry.versions v JOIN posthouse_registry.schemas s ON s.id = v.schema_id
ORDER BY v.subject, v.version
"""

# Every subject, with 0 where a version lives and 1 where all are deleted.
SUBJECTS = "SELECT subject, min(deleted) FROM posthouse_registry.versions GROUP BY subject ORDER BY subject"

# The highest id so far.
LAST_ID = "SELECT last_id FROM posthouse_registry.counter"

# Remember the highest id.
KEEP_LAST_ID = "UPDATE posthouse_registry.counter SET last_id = $1 WHERE last_id < $1"

# A new schema …
ADD_SCHEMA = """
INSERT INTO posthouse_registry.schemas (id, fingerprint, normal, type, text, compiled) VALUES ($1, $2, $3, $4, $5, $6)
"""

# … and one thing that it refers to.
ADD_LINK = "INSERT INTO posthouse_registry.links (schema_id, place, name, subject, version) VALUES ($1, $2, $3, $4, $5)"

# The highest version that a subject ever had.
LAST_VERSION = "SELECT last_version FROM posthouse_registry.subjects WHERE subject = $1"

# Remember it.
KEEP_LAST_VERSION = """
INSERT INTO posthouse_registry.subjects (subject, last_version) VALUES ($1, $2)
ON CONFLICT (subject) DO UPDATE SET last_version = excluded.last_version
WHERE subjects.last_version < excluded.last_version
"""

# A new version, or one that comes back.
ADD_VERSION = """
INSERT INTO posthouse_registry.versions (subject, version, schema_id, deleted) VALUES ($1, $2, $3, 0)
ON CONFLICT (subject, version) DO UPDATE SET schema_id = excluded.schema_id, deleted = 0
"""

# Soft deletion.
HIDE_VERSION = "UPDATE posthouse_registry.versions SET deleted = 1 WHERE subject = $1 AND version = $2"

# Permanent deletion of a version …
ERASE_VERSION = "DELETE FROM posthouse_registry.versions WHERE subject = $1 AND version = $2"

# … of a subject's memory …
ERASE_SUBJECT = "DELETE FROM posthouse_registry.subjects WHERE subject = $1"

# … and of a schema that nobody has any more.
ERASE_LINKS = """
DELETE FROM posthouse_registry.links WHERE schema_id = $1
AND NOT EXISTS (SELECT 1 FROM posthouse_registry.versions v WHERE v.schema_id = $1)
"""
ERASE_SCHEMA = """
DELETE FROM posthouse_registry.schemas WHERE id = $1
AND NOT EXISTS (SELECT 1 FROM posthouse_registry.versions v WHERE v.schema_id = $1)
"""

# Compatibility and mode of a subject, or of all.
SETTINGS = "SELECT compatibility, mode FROM posthouse_registry.settings WHERE subject = $1"

# Set them.
KEEP_SETTINGS = """
INSERT INTO posthouse_registry.settings (subject, compatibility, mode) VALUES ($1, $2, $3)
ON CONFLICT (subject) DO UPDATE SET compatibility = excluded.compatibility, mode = excluded.mode
"""


class Reference(msgspec.Struct, frozen=True):
    """What a schema imports, under the name by which it calls it."""

    name: str
    subject: str
    version: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A schema as it is kept; `tables.py` says what the columns mean."""

    id: int
    fingerprint: str
    normal: str
    type: str
    text: str
    compiled: bytes
    references: tuple[Reference, ...] = ()


class Version(msgspec.Struct, frozen=True):
    """One version of a subject."""

    subject: str
    version: int
    schema_id: int
    deleted: bool
    normal: str


class Settings(msgspec.Struct, frozen=True):
    """Compatibility and mode; None where nothing is set."""

    compatibility: str | None = None
    mode: str | None = None


class Books:
    """The statements above, as values."""

    def __init__(self, session: Session) -> None:
        self._fetch = session.fetch

    async def schema(self, id: int) -> Stored | None:
        rows = await self._fetch(SCHEMA, id)
        if not rows:
            return None
        links = await self._fetch(LINKS, id)
        names = ("id", "fingerprint", "normal", "type", "text", "compiled")
        references = tuple(msgspec.convert(link, Reference) for link in map(_reference, links))
        return msgspec.convert(dict(zip(names, rows[0], strict=True)) | {"references": references}, Stored)

    async def id_of(self, fingerprint: str) -> int | None:
        rows = await self._fetch(ID_OF, fingerprint)
        return _number(rows[0][0]) if rows else None

    async def versions(self, subject: str) -> list[Version]:
        return [_version(row) for row in await self._fetch(VERSIONS, subject)]

    async def all_versions(self) -> list[Version]:
        return [_version(row) for row in await self._fetch(ALL_VERSIONS)]

    async def uses(self, schema_id: int) -> list[Version]:
        return [_version(row) for row in await self._fetch(USES, schema_id)]

    async def subjects(self) -> list[tuple[str, bool]]:
        """Every subject in order, with whether all its versions are deleted."""
        return [(str(subject), bool(deleted)) for subject, deleted in await self._fetch(SUBJECTS)]

    async def referrers(self, subject: str, version: int, *, deleted: bool) -> list[int]:
        """The ids of the schemas that refer to a version; `deleted` counts those too that have no live version."""
        rows = await self._fetch(REFERRERS, subject, version)
        return list(dict.fromkeys(_number(id) for id, hidden in rows if deleted or not hidden))

    async def last_id(self) -> int:
        return _number((await self._fetch(LAST_ID))[0][0])

    async def add_schema(self, schema: Stored) -> None:
        await self._fetch(
            ADD_SCHEMA,
            schema.id,
            schema.fingerprint,
            schema.normal,
            schema.type,
            schema.text,
            schema.compiled,
        )
        for place, link in enumerate(schema.references):
            await self._fetch(ADD_LINK, schema.id, place, link.name, link.subject, link.version)
        await self._fetch(KEEP_LAST_ID, schema.id)

    async def last_version(self, subject: str) -> int:
        rows = await self._fetch(LAST_VERSION, subject)
        return _number(rows[0][0]) if rows else 0

    async def add_version(self, subject: str, version: int, schema_id: int) -> None:
        await self._fetch(ADD_VERSION, subject, version, schema_id)
        await self._fetch(KEEP_LAST_VERSION, subject, version)

    async def hide(self, version: Version) -> None:
        await self._fetch(HIDE_VERSION, version.subject, version.version)

    async def erase(self, version: Version) -> None:
        """Without a trace, and with it the schema when nobody else has it."""
        await self._fetch(ERASE_VERSION, version.subject, version.version)
        await self._fetch(ERASE_LINKS, version.schema_id)
        await self._fetch(ERASE_SCHEMA, version.schema_id)

    async def forget_subject(self, subject: str) -> None:
        """Its versions may be counted from one again."""
        await self._fetch(ERASE_SUBJECT, subject)

    async def settings(self, subject: str) -> Settings:
        rows = await self._fetch(SETTINGS, subject)
        return (
            msgspec.convert(dict(zip(("compatibility", "mode"), rows[0], strict=True)), Settings)
            if rows
            else Settings()
        )

    async def keep_settings(self, subject: str, settings: Settings) -> None:
        await self._fetch(KEEP_SETTINGS, subject, settings.compatibility, settings.mode)


def _reference(row: Row) -> dict[str, object]:
    return dict(zip(("name", "subject", "version"), row, strict=True))


def _version(row: Row) -> Version:
    subject, version, schema_id, deleted, normal = row
    return Version(str(subject), _number(version), _number(schema_id), bool(deleted), str(normal))


def _number(value: object) -> int:
    return msgspec.convert(value, int)


def live(versions: Sequence[Version]) -> list[Version]:
    """Those that are not deleted."""
    return [version for version in versions if not version.deleted]
