"""The questions of the API: paths, who may ask, and how each answer is made of what the registry says."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import TypeVar

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.events import CODECS
from posthouse.events.limits import UNREADABLE
from posthouse.governance.envelopes import envelope_files
from posthouse.governance.registry import refusal
from posthouse.governance.registry.books import GLOBAL, Reference, Stored, Version
from posthouse.governance.registry.registry import LARGEST, MODES, Registry, SchemaRequest, check_subject
from posthouse.governance.registry.users import Role

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
EVERY_CONTEXT = (":*:", "")
"""What clients put before a prefix when they mean all contexts; there is one."""

Answer = Awaitable[object]
T = TypeVar("T")


class Asked(msgspec.Struct, frozen=True):
    """A request, without HTTP."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""

    @property
    def subject(self) -> str:
        """The subject that is asked about; none means all."""
        return self.path.get("subject", GLOBAL)

    def flag(self, name: str) -> bool:
        """A switch in the query. Clients write it in many ways."""
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str, default: int) -> int:
        """A number in the query."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.lstrip("-").isdigit() or len(text) > 10:
            raise refusal.bad_request(f"{name} is a number, not {text[:20]!r}")
        return int(text)

    def content(self, kind: type[T]) -> T:
        """The body as a value."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except UNREADABLE as error:
            raise refusal.bad_request(f"the body is not what this path takes: {error}") from error


class Question(msgspec.Struct, frozen=True):
    """One path with one method. `role` may ask it, or `permanent_role` when something is deleted for ever."""

    method: str
    path: str
    role: Role
    answer: Callable[[Registry, Asked], Answer]
    permanent_role: Role | None = None

    def needs(self, asked: Asked) -> Role:
        """The role that this request needs."""
        if self.permanent_role is not None and asked.flag("permanent"):
            return self.permanent_role
        return self.role


class ModeRequest(msgspec.Struct, frozen=True):
    """The mode of a subject, or of all."""

    mode: str


async def root(registry: Registry, asked: Asked) -> object:
    return {}


async def types(registry: Registry, asked: Asked) -> object:
    return sorted(registry.formats)


async def contexts(registry: Registry, asked: Asked) -> object:
    return ["."]


async def server_id(registry: Registry, asked: Asked) -> object:
    """Clients of Confluent's cloud ask which cluster answers; here there is one registry to a store."""
    return {"scope": {"path": [], "clusters": {"kafka-cluster": "", "schema-registry-cluster": "posthouse"}}, "id": ""}


async def server_version(registry: Registry, asked: Asked) -> object:
    return {"version": version("posthouse"), "commitId": ""}


async def envelopes(registry: Registry, asked: Asked) -> object:
    """Beside Confluent's API: what is around every payload, of all codecs that are installed where the registry runs."""
    return sorted(_envelopes())


async def envelope(registry: Registry, asked: Asked) -> object:
    try:
        return _envelopes()[asked.path["name"]].decode()
    except KeyError:
        raise refusal.schema_not_found() from None


async def latest_with_metadata(registry: Registry, asked: Asked) -> object:
    """The newest version whose metadata has what the query says. No schema has any here, so without a question it is
    the latest, and with one there is none."""
    if asked.query.get("key"):
        raise refusal.schema_not_found()
    found, stored = await registry.version(asked.subject, "latest", deleted=asked.flag("deleted"))
    return _versioned(registry, asked, found, stored)


async def subjects(registry: Registry, asked: Asked) -> object:
    found = await registry.subjects(
        prefix=_prefix(asked), deleted=asked.flag("deleted"), deleted_only=asked.flag("deletedOnly")
    )
    return _page(asked, found)


async def schemas(registry: Registry, asked: Asked) -> object:
    found = await registry.all_versions(
        prefix=_prefix(asked), deleted=asked.flag("deleted"), latest_only=asked.flag("latestOnly")
    )
    return [_versioned(registry, asked, version, stored) for version, stored in _page(asked, found)]


async def schema_by_id(registry: Registry, asked: Asked) -> object:
    stored = await registry.schema(_id(asked))
    shown = _schema(registry, asked, stored)
    return shown | {"maxId": await registry.last_id()} if asked.flag("fetchMaxId") else shown


async def text_by_id(registry: Registry, asked: Asked) -> object:
    return _text(registry, asked, await registry.schema(_id(asked)))


async def subjects_of_id(registry: Registry, asked: Asked) -> object:
    found = await registry.uses(_id(asked), deleted=asked.flag("deleted"))
    return list(dict.fromkeys(version.subject for version in found))


async def versions_of_id(registry: Registry, asked: Asked) -> object:
    found = await registry.uses(_id(asked), deleted=asked.flag("deleted"))
    wanted = asked.query.get("subject", "")
    return [
        {"subject": version.subject, "version": version.version}
        for version in found
        if not wanted or version.subject == wanted
    ]


async def versions(registry: Registry, asked: Asked) -> object:
    found = await registry.versions(
        asked.subject, deleted=asked.flag("deleted"), deleted_only=asked.flag("deletedOnly")
    )
    return _page(asked, [version.version for version in found])


async def one_version(registry: Registry, asked: Asked) -> object:
    found, stored = await registry.version(asked.subject, asked.path["version"], deleted=asked.flag("deleted"))
    return _versioned(registry, asked, found, stored)


async def text_of_version(registry: Registry, asked: Asked) -> object:
    _, stored = await registry.version(asked.subject, asked.path["version"], deleted=asked.flag("deleted"))
    return _text(registry, asked, stored)


async def referrers(registry: Registry, asked: Asked) -> object:
    return await registry.referrers(asked.subject, asked.path["version"], deleted=asked.flag("deleted"))


async def register(registry: Registry, asked: Asked) -> object:
    request = _schema_request(asked)
    found = await registry.register(asked.subject, request, normalize=asked.flag("normalize"))
    return {"id": found.schema_id}  # nothing else: clients that find a text here remember it instead of their own


async def lookup(registry: Registry, asked: Asked) -> object:
    request = _schema_request(asked)
    found = await registry.lookup(
        asked.subject, request, normalize=asked.flag("normalize"), deleted=asked.flag("deleted")
    )
    return _versioned(registry, asked, found, await registry.schema(found.schema_id))


async def delete_subject(registry: Registry, asked: Asked) -> object:
    return await registry.delete_subject(asked.subject, permanent=asked.flag("permanent"))


async def delete_version(registry: Registry, asked: Asked) -> object:
    return await registry.delete_version(asked.subject, asked.path["version"], permanent=asked.flag("permanent"))


async def check(registry: Registry, asked: Asked) -> object:
    request = _schema_request(asked)
    verbose = asked.flag("verbose")
    try:
        messages = await registry.check(
            asked.subject, request, asked.path.get("version"), normalize=asked.flag("normalize")
        )
    except refusal.Refusal as refused:
        if not verbose or refused.code != 42201:
            raise
        messages = [str(refused)]
    answer: dict[str, object] = {"is_compatible": not messages}
    return answer | {"messages": messages} if verbose else answer


async def config(registry: Registry, asked: Asked) -> object:
    inherited = asked.subject == GLOBAL or asked.flag("defaultToGlobal")
    found = await registry.settings(asked.subject, inherited=inherited)
    if found.compatibility is None:
        raise refusal.compatibility_not_configured(asked.subject)
    return {"compatibilityLevel": found.compatibility}


async def set_config(registry: Registry, asked: Asked) -> object:
    _check_subject(asked)
    level = _config_request(asked)
    await registry.set_compatibility(asked.subject, level)
    return {"compatibility": level}


async def unset_config(registry: Registry, asked: Asked) -> object:
    before = await registry.set_compatibility(asked.subject, None)
    if before.compatibility is None and asked.subject != GLOBAL:
        raise refusal.subject_not_found(asked.subject)
    return {"compatibilityLevel": before.compatibility or "BACKWARD"}


async def mode(registry: Registry, asked: Asked) -> object:
    inherited = asked.subject == GLOBAL or asked.flag("defaultToGlobal")
    found = await registry.settings(asked.subject, inherited=inherited)
    if found.mode is None:
        raise refusal.mode_not_configured(asked.subject)
    return {"mode": found.mode}


async def set_mode(registry: Registry, asked: Asked) -> object:
    _check_subject(asked)
    wanted = asked.content(ModeRequest).mode.upper()
    if wanted not in MODES:
        raise refusal.invalid_mode(wanted)
    await registry.set_mode(asked.subject, wanted, force=asked.flag("force"))
    return {"mode": wanted}


async def unset_mode(registry: Registry, asked: Asked) -> object:
    before = await registry.set_mode(asked.subject, None)
    if before.mode is None and asked.subject != GLOBAL:
        raise refusal.subject_not_found(asked.subject)
    return {"mode": before.mode or "READWRITE"}


QUESTIONS = (
    Question("GET", "/", Role.READ, root),
    Question("GET", "/schemas/types", Role.READ, types),
    Question("GET", "/contexts", Role.READ, contexts),
    Question("GET", "/v1/metadata/id", Role.READ, server_id),
    Question("GET", "/v1/metadata/version", Role.READ, server_version),
    Question("GET", "/envelopes", Role.READ, envelopes),
    Question("GET", "/envelopes/{name}", Role.READ, envelope),
    Question("GET", "/subjects/{subject}/metadata", Role.READ, latest_with_metadata),
    Question("GET", "/schemas", Role.READ, schemas),
    Question("GET", "/schemas/ids/{id}", Role.READ, schema_by_id),
    Question("GET", "/schemas/ids/{id}/schema", Role.READ, text_by_id),
    Question("GET", "/schemas/ids/{id}/subjects", Role.READ, subjects_of_id),
    Question("GET", "/schemas/ids/{id}/versions", Role.READ, versions_of_id),
    Question("GET", "/subjects", Role.READ, subjects),
    Question("POST", "/subjects/{subject}", Role.READ, lookup),
    Question("DELETE", "/subjects/{subject}", Role.WRITE, delete_subject, Role.ADMIN),
    Question("GET", "/subjects/{subject}/versions", Role.READ, versions),
    Question("POST", "/subjects/{subject}/versions", Role.WRITE, register),
    Question("GET", "/subjects/{subject}/versions/{version}", Role.READ, one_version),
    Question("DELETE", "/subjects/{subject}/versions/{version}", Role.WRITE, delete_version, Role.ADMIN),
    Question("GET", "/subjects/{subject}/versions/{version}/schema", Role.READ, text_of_version),
    Question("GET", "/subjects/{subject}/versions/{version}/referencedby", Role.READ, referrers),
    Question("POST", "/compatibility/subjects/{subject}/versions", Role.READ, check),
    Question("POST", "/compatibility/subjects/{subject}/versions/{version}", Role.READ, check),
    Question("GET", "/config", Role.READ, config),
    Question("PUT", "/config", Role.ADMIN, set_config),
    Question("DELETE", "/config", Role.ADMIN, unset_config),
    Question("GET", "/config/{subject}", Role.READ, config),
    Question("PUT", "/config/{subject}", Role.ADMIN, set_config),
    Question("DELETE", "/config/{subject}", Role.ADMIN, unset_config),
    Question("GET", "/mode", Role.READ, mode),
    Question("PUT", "/mode", Role.ADMIN, set_mode),
    Question("DELETE", "/mode", Role.ADMIN, unset_mode),
    Question("GET", "/mode/{subject}", Role.READ, mode),
    Question("PUT", "/mode/{subject}", Role.ADMIN, set_mode),
    Question("DELETE", "/mode/{subject}", Role.ADMIN, unset_mode),
)


def _envelopes() -> Mapping[str, bytes]:
    """By the name of the file that they are frozen in; a codec that cannot be used has none."""
    found: dict[str, bytes] = {}
    for name in CODECS:
        with contextlib.suppress(ConfigurationError):
            found |= {path.rpartition("/")[2]: text for path, text in envelope_files({name}).items()}
    return found


def _schema_request(asked: Asked) -> SchemaRequest:
    request = asked.content(SchemaRequest)
    for part, value in (("metadata", request.metadata), ("rule set", request.rule_set)):
        if value:
            raise refusal.not_kept(part)
    for link in request.references or ():
        if link.version != -1 and not 1 <= link.version <= LARGEST:
            raise refusal.invalid_version(str(link.version))
    return request


def _config_request(asked: Asked) -> str:
    given = asked.content(dict[str, object])
    others = [name for name, value in given.items() if name != "compatibility" and value is not None]
    if others:
        raise refusal.not_kept(f"setting {others[0]!r}")
    level = given.get("compatibility")
    if not isinstance(level, str) or level.upper() not in LEVELS:
        raise refusal.invalid_compatibility(level)
    return level.upper()


def _check_subject(asked: Asked) -> None:
    if asked.subject != GLOBAL:
        check_subject(asked.subject)


def _id(asked: Asked) -> int:
    text = asked.path["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > LARGEST:
        raise refusal.schema_not_found()
    return int(text)


def _prefix(asked: Asked) -> str:
    given = asked.query.get("subjectPrefix", "")
    return "" if given in EVERY_CONTEXT else given.removeprefix(":*:")


def _page(asked: Asked, found: list[T]) -> list[T]:
    offset, limit = max(asked.number("offset", 0), 0), asked.number("limit", -1)
    return found[offset:] if limit < 0 else found[offset : offset + limit]


def _versioned(registry: Registry, asked: Asked, version: Version, stored: Stored) -> dict[str, object]:
    head = {"subject": version.subject, "version": version.version, "id": version.schema_id}
    return head | _schema(registry, asked, stored)


def _schema(registry: Registry, asked: Asked, stored: Stored) -> dict[str, object]:
    """Avro is what is meant where no type stands, and no references means no key: clients rely on both."""
    shown: dict[str, object] = {} if stored.type == "AVRO" else {"schemaType": stored.type}
    if stored.references:
        shown["references"] = [_reference(link) for link in stored.references]
    return shown | {"schema": _text(registry, asked, stored)}


def _text(registry: Registry, asked: Asked, stored: Stored) -> str:
    known = registry.formats.get(stored.type)
    return known.shown(stored.text, stored.compiled, asked.query.get("format", "")) if known else stored.text


def _reference(link: Reference) -> dict[str, object]:
    return {"name": link.name, "subject": link.subject, "version": link.version}
