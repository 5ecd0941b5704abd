"""Registry: which schema gets which id and version, and who may change what. One method for each question of the API."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.governance.evolution import Mode
from posthouse.governance.registry import refusal
from posthouse.governance.registry.books import GLOBAL, Books, Reference, Settings, Stored, Version, live
from posthouse.governance.registry.comparing import Known
from posthouse.governance.registry.drafts import Draft, Drafts
from posthouse.governance.registry.format import Format
from posthouse.governance.registry.judge import Judge, ThreadJudge
from posthouse.governance.registry.ledger import Ledger

LARGEST = 2**31 - 1
READWRITE, READONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"
MODES = (READWRITE, READONLY, IMPORT)
DEFAULT_LEVEL = Mode.BACKWARD.value
"""What holds where nothing was set; the default mode is READWRITE."""


class SchemaRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A schema as clients send it. `id` and `version` count in IMPORT mode only."""

    schema: str | None = None
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None
    id: int | None = None
    version: int | None = None
    metadata: object = None
    rule_set: object = None


class Registry:
    """The registry over one ledger. `formats` by the names that the API uses; `judge` reads and compares their schemas."""

    def __init__(self, ledger: Ledger, formats: Mapping[str, Format], judge: Judge | None = None) -> None:
        self.formats = formats
        self._ledger = ledger
        self._judge = judge or ThreadJudge(formats)
        self._drafts = Drafts(ledger, formats, self._judge)

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Version:
        """The version that holds this schema, made where it is new. Raises Refusal."""
        check_subject(subject)
        draft = await self._drafts.draft(request.schema, request.schema_type, request.references, normalize=normalize)
        judged: _State | None = None
        while True:  # until nobody changed what was judged; the patience of the request ends it
            async with self._ledger.writing() as session:
                books = Books(session)
                state = await _state(books, subject)
                found = _same(state.versions, draft, await books.id_of(draft.fingerprint), normalize=normalize)
                if found is not None and request.id in (None, found.schema_id):
                    return found
                _check_mode(subject, state.settings, request.id)
                await self._drafts.check_links(books, draft.references)
                past = await _counted(books, state)
                if not past or state == judged:
                    return await _added(books, subject, request, draft)
            await self._check_history(subject, past, draft, state.settings)
            judged = state

    async def lookup(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> Version:
        """The version of the subject that holds this schema."""
        draft = await self._drafts.draft(request.schema, request.schema_type, request.references, normalize=normalize)
        async with self._ledger.reading() as session:
            books = Books(session)
            versions = await books.versions(subject)
            chosen = versions if deleted else live(versions)
            if not chosen:
                raise refusal.subject_not_found(subject)
            found = _same(chosen, draft, await books.id_of(draft.fingerprint), normalize=normalize, deleted=deleted)
        if found is None:
            raise refusal.schema_not_found()
        return found

    async def check(self, subject: str, request: SchemaRequest, number: str | None, *, normalize: bool) -> list[str]:
        """What speaks against registering the schema: against one version, or against those that its level counts."""
        async with self._ledger.reading() as session:
            books = Books(session)
            history = live(await books.versions(subject))
            if number is not None:
                history = _chosen_for_check(history, number)
            settings = await settings_of(books, subject)
            past = [await _stored(books, version) for version in history]
        draft = await self._drafts.draft(request.schema, request.schema_type, request.references, normalize=normalize)
        return await self._judge.complaints([_known(stored) for stored in past], draft.known, _level(settings))

    async def schema(self, id: int) -> Stored:
        """A schema by its id; those whose versions are softly deleted too."""
        async with self._ledger.reading() as session:
            found = await Books(session).schema(id)
        if found is None:
            raise refusal.schema_not_found(id)
        return found

    async def last_id(self) -> int:
        """The highest id that was given so far."""
        async with self._ledger.reading() as session:
            return await Books(session).last_id()

    async def uses(self, id: int, *, deleted: bool) -> list[Version]:
        """The versions that have a schema."""
        async with self._ledger.reading() as session:
            found = await Books(session).uses(id)
        if not found:
            raise refusal.schema_not_found(id)
        return found if deleted else live(found)

    async def subjects(self, *, prefix: str, deleted: bool, deleted_only: bool) -> list[str]:
        """The names of the subjects in order."""
        async with self._ledger.reading() as session:
            found = await Books(session).subjects()
        return [
            name for name, gone in found if name.startswith(prefix) and (gone if deleted_only else deleted or not gone)
        ]

    async def versions(self, subject: str, *, deleted: bool, deleted_only: bool = False) -> list[Version]:
        """The versions of a subject, oldest first."""
        async with self._ledger.reading() as session:
            found = await Books(session).versions(subject)
        if not (found if deleted or deleted_only else live(found)):
            raise refusal.subject_not_found(subject)
        return [v for v in found if v.deleted] if deleted_only else found if deleted else live(found)

    async def all_versions(self, *, prefix: str, deleted: bool, latest_only: bool) -> list[tuple[Version, Stored]]:
        """Every version of every subject, with its schema."""
        async with self._ledger.reading() as session:
            books = Books(session)
            found = [
                v for v in await books.all_versions() if v.subject.startswith(prefix) and (deleted or not v.deleted)
            ]
            if latest_only:
                found = list({version.subject: version for version in found}.values())
            return [(version, await _stored(books, version)) for version in found]

    async def version(self, subject: str, number: str, *, deleted: bool) -> tuple[Version, Stored]:
        """One version of a subject; `number` may be `latest`."""
        async with self._ledger.reading() as session:
            books = Books(session)
            found = _chosen(subject, await books.versions(subject), number, deleted=deleted)
            return found, await _stored(books, found)

    async def referrers(self, subject: str, number: str, *, deleted: bool) -> list[int]:
        """The ids of the schemas that refer to a version."""
        async with self._ledger.reading() as session:
            books = Books(session)
            found = _chosen(subject, await books.versions(subject), number, deleted=True)
            return await books.referrers(subject, found.version, deleted=deleted)

    async def delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        """Hide a version, or erase one that is hidden. Ids still resolve while it is only hidden."""
        async with self._ledger.writing() as session:
            books = Books(session)
            versions = await books.versions(subject)
            found = _chosen(subject, versions, number, deleted=number not in LATEST)
            _check_writable(subject, await settings_of(books, subject))
            if found.deleted and not permanent:
                raise refusal.version_soft_deleted(subject, found.version)
            if permanent and not found.deleted:
                raise refusal.version_not_soft_deleted(subject, found.version)
            await _delete(books, [found], permanent=permanent)
            if permanent and len(versions) == 1:
                await books.forget_subject(subject)
        return found.version

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Hide all versions of a subject, or erase them when all are hidden. Its own settings go with it."""
        async with self._ledger.writing() as session:
            books = Books(session)
            versions = await books.versions(subject)
            if not versions:
                raise refusal.subject_not_found(subject)
            _check_writable(subject, await settings_of(books, subject))
            if permanent and live(versions):
                raise refusal.subject_not_soft_deleted(subject)
            if not permanent and not live(versions):
                raise refusal.subject_soft_deleted(subject)
            chosen = versions if permanent else live(versions)
            await _delete(books, chosen, permanent=permanent)
            await books.keep_settings(subject, Settings())
            if permanent:
                await books.forget_subject(subject)
        return [version.version for version in chosen]

    async def settings(self, subject: str, *, inherited: bool) -> Settings:
        """What is set for a subject, or what holds for it."""
        async with self._ledger.reading() as session:
            books = Books(session)
            return await settings_of(books, subject) if inherited else await books.settings(subject)

    async def set_compatibility(self, subject: str, level: str | None) -> Settings:
        """Set or, with None, unset a level; what was set before."""
        async with self._ledger.writing() as session:
            books = Books(session)
            _check_writable(subject, await settings_of(books, subject))
            before = await books.settings(subject)
            await books.keep_settings(subject, msgspec.structs.replace(before, compatibility=level))
        return before

    async def set_mode(self, subject: str, mode: str | None, *, force: bool = False) -> Settings:
        """Set or, with None, unset a mode; what was set before."""
        async with self._ledger.writing() as session:
            books = Books(session)
            if mode == IMPORT and not force and await _anything(books, subject):
                raise refusal.not_permitted(
                    "Cannot import since found existing subjects; force=true does it all the same"
                )
            before = await books.settings(subject)
            await books.keep_settings(subject, msgspec.structs.replace(before, mode=mode))
        return before

    async def _check_history(self, subject: str, past: list[Stored], draft: Draft, settings: Settings) -> None:
        """No transaction is open: a comparison may take its time, and other subjects are written meanwhile."""
        messages = await self._judge.complaints([_known(stored) for stored in past], draft.known, _level(settings))
        if messages:
            raise refusal.incompatible(subject, messages)


class _State(msgspec.Struct, frozen=True):
    """All that a verdict on a new version rests on."""

    versions: list[Version]
    settings: Settings


async def _state(books: Books, subject: str) -> _State:
    return _State(await books.versions(subject), await settings_of(books, subject))


async def _counted(books: Books, state: _State) -> list[Stored]:
    """The schemas that a new version is held against; none where anything goes."""
    level = _level(state.settings)
    if level is Mode.NONE or state.settings.mode == IMPORT:
        return []
    history = live(state.versions)
    return [await _stored(books, version) for version in (history if level.transitive else history[-1:])]


def _known(stored: Stored) -> Known:
    return Known(f"schema {stored.id}", stored.type, stored.compiled)


LATEST = ("latest", "-1")


def check_subject(subject: str) -> None:
    """Raises Refusal for names that no subject may have."""
    if subject in ("__GLOBAL", "__EMPTY", ""):
        raise refusal.invalid_subject(subject, "the name is reserved")
    if subject.startswith(":."):
        raise refusal.invalid_subject(subject, "this registry has one context, the default one")
    if len(subject) > 1_000 or any(ord(character) < 32 or ord(character) == 127 for character in subject):
        raise refusal.invalid_subject(subject[:100], "at most 1,000 characters, and no control characters")


async def settings_of(books: Books, subject: str) -> Settings:
    """What holds for a subject: its own settings, else those of all, else the defaults."""
    own, shared = await books.settings(subject), await books.settings(GLOBAL)
    return Settings(own.compatibility or shared.compatibility or DEFAULT_LEVEL, own.mode or shared.mode or READWRITE)


def _level(settings: Settings) -> Mode:
    return Mode(settings.compatibility or DEFAULT_LEVEL)


def _same(
    versions: list[Version], draft: Draft, id: int | None, *, normalize: bool, deleted: bool = False
) -> Version | None:
    """The newest version with the same schema."""
    for version in reversed(versions):
        same = version.schema_id == id or (normalize and version.normal == draft.normal)
        if same and (deleted or not version.deleted):
            return version
    return None


def _check_mode(subject: str, settings: Settings, id: int | None) -> None:
    _check_writable(subject, settings)
    if id is not None and settings.mode != IMPORT:
        raise refusal.not_permitted(
            f"Subject {subject} is not in import mode, so the id of its schema cannot be chosen"
        )
    if id is None and settings.mode == IMPORT:
        raise refusal.not_permitted(f"Subject {subject} is in import mode, so the schema needs an id")


def _check_writable(subject: str, settings: Settings) -> None:
    if settings.mode == READONLY:
        raise refusal.not_permitted(f"Subject {subject or 'of all'} is in read-only mode")


async def _added(books: Books, subject: str, request: SchemaRequest, draft: Draft) -> Version:
    id = await _id(books, request.id, draft)
    version = (await books.last_version(subject)) + 1
    if request.id is not None and request.version is not None:
        version = request.version
        taken = [
            v for v in await books.versions(subject) if v.version == version and v.schema_id != id and not v.deleted
        ]
        if taken or not 1 <= version <= LARGEST:
            raise refusal.id_does_not_match(f"Version {version} of {subject} cannot be given to schema {id}")
    await books.add_version(subject, version, id)
    return Version(subject, version, id, False, draft.normal)


async def _id(books: Books, wanted: int | None, draft: Draft) -> int:
    """The id of the schema, which is kept under a new one if it is not there yet."""
    known = await books.id_of(draft.fingerprint)
    if known is not None and wanted in (None, known):
        return known
    if known is not None:
        raise refusal.id_does_not_match(f"The schema is there already, with id {known} instead of {wanted}")
    id = wanted if wanted is not None else await books.last_id() + 1
    if not 1 <= id <= LARGEST:
        raise refusal.id_does_not_match(f"{id} is not an id: they are between 1 and {LARGEST}")
    if wanted is not None and await books.schema(id) is not None:
        raise refusal.id_does_not_match(f"Overwrite new schema with id {id} is not permitted: it has another schema")
    await books.add_schema(draft.stored(id))
    return id


async def _delete(books: Books, versions: list[Version], *, permanent: bool) -> None:
    for version in versions:
        if await books.referrers(version.subject, version.version, deleted=permanent):
            raise refusal.reference_exists(version.subject, version.version)
        await (books.erase(version) if permanent else books.hide(version))


async def _anything(books: Books, subject: str) -> bool:
    if subject == GLOBAL:
        return any(not gone for _, gone in await books.subjects())
    return bool(live(await books.versions(subject)))


async def _stored(books: Books, version: Version) -> Stored:
    found = await books.schema(version.schema_id)
    if found is None:  # the ledger's foreign keys forbid it
        raise refusal.store_failed(f"schema {version.schema_id} of {version.subject} is missing")
    return found


def _chosen(subject: str, versions: list[Version], number: str, *, deleted: bool) -> Version:
    wanted = parsed_number(number)
    known = versions if deleted else live(versions)
    if not known:
        raise refusal.subject_not_found(subject)
    if wanted is None:
        return known[-1]
    for version in known:
        if version.version == wanted:
            return version
    raise refusal.version_not_found(wanted)


def _chosen_for_check(history: list[Version], number: str) -> list[Version]:
    """One version; none at all where the latest of nothing is asked for, which nothing can be incompatible with."""
    wanted = parsed_number(number)
    if wanted is None:
        return history[-1:]
    found = [version for version in history if version.version == wanted]
    if not found:
        raise refusal.version_not_found(wanted)
    return found


def parsed_number(text: str) -> int | None:
    """The number of a version; None is the latest."""
    if text in LATEST:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= LARGEST:
        raise refusal.invalid_version(text)
    return int(text)
