"""First sight: a schema URI that comes with an event is compared, once, with what is known about its subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posthouse.contracts.catalogue import EventType
from posthouse.contracts.lock import Lock, Locked
from posthouse.contracts.terms import SchemaFormat
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events.envelope import Event

SCHEME = "schemas://"
MAX_SEEN = 10_000
"""So many URIs are remembered; a producer that invents new ones all the time costs time, not memory."""
LOOK_AGAIN = 10.0
"""Seconds before a lock that lacked a hash is read again."""

ENCODINGS: Mapping[SchemaFormat, frozenset[str]] = {
    "avro": frozenset(("application/avro", "avro/binary", "application/vnd.apache.avro+binary")),
    "protobuf": frozenset(("application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf")),
}

Sight = tuple[str, str | None, str | None]


class SchemaUnknown(ContractError):
    """The schema that an event names is not known here, and may be known where contracts are published."""

    def __init__(self, guard: SchemaGuard, place: str, content_hash: str) -> None:
        self.guard, self.place, self.content_hash = guard, place, content_hash
        super().__init__(f"its schema {content_hash} of {place} is not known here")


class SchemaGuard:
    """Remembers what was looked at and found fine; that costs one look into a set.

    Without frozen schemas only a URI that belongs to another subject is refused, and the typed decoder judges the rest.
    With them a hash must be one that its version has or had there. `read` gives the lock anew: schemas are published
    before the events that carry them, so an unknown hash may be known by now.
    """

    def __init__(
        self,
        read: Callable[[], Lock] | None = None,
        now: Callable[[], float] = lambda: 0.0,
        *,
        fetches: bool = False,
    ) -> None:
        """`fetches`: somebody fetches what others have published, and is told by SchemaUnknown what is missing."""
        self._read = read
        self._now = now
        self._fetches = fetches
        self._published: Mapping[str, Locked] = {}
        self._asked: dict[tuple[str, str], float] = {}
        """Hashes for which the published contracts were asked, and when."""
        self._seen: set[Sight] = set()
        self._frozen: Mapping[str, Locked] = {}
        self._looked_at: float | None = None

    def check(self, event_type: EventType[object], event: Event[bytes]) -> None:
        """Raise ContractError when the event contradicts what is known about its schema."""
        sight = (event.type, event.schema, event.content_type)
        if sight not in self._seen:
            self._look(event_type, event)
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen.add(sight)

    def learn(self, lock: Lock) -> None:
        """What others have published, beside the frozen schemas that lie here."""
        self._published = {path.rpartition(".")[0]: locked for path, locked in lock.schemas.items()}

    def knows(self, place: str, content_hash: str) -> bool | None:
        """Whether the published contracts have a hash; None where they say nothing of its place."""
        locked = self._published.get(place)
        return None if locked is None else _has(locked, content_hash)

    def asked(self, place: str, content_hash: str) -> None:
        """They were asked for it just now, and said what they know: for a while nobody need ask again."""
        if len(self._asked) >= MAX_SEEN:
            self._asked.clear()
        self._asked[place, content_hash] = self._now()

    def _look(self, event_type: EventType[object], event: Event[bytes]) -> None:
        _refuse_other_encoding(event_type, event.content_type)
        if event.schema is None or not event.schema.startswith(SCHEME):
            return
        place, _, content_hash = event.schema.partition("#")
        own, _, own_hash = event_type.schema.partition("#")
        if place != own:
            raise ContractError(
                f"it is a {event_type.name}, but its schema URI names {place}: its producer mixed them up"
            )
        if content_hash and content_hash != own_hash:
            self._refuse_unfrozen(event_type, own.removeprefix(SCHEME), content_hash)

    def _refuse_unfrozen(self, event_type: EventType[object], place: str, content_hash: str) -> None:
        locked = self._locked(event_type, place)
        if locked is not None and not _has(locked, content_hash) and self._is_time_to_look():
            self._look_into_lock()
            locked = self._locked(event_type, place)
        if locked is None or not _has(locked, content_hash):
            published = self._published.get(place)
            if published is not None and published.subject == event_type.name and _has(published, content_hash):
                locked = published
            elif self._fetches and self._is_to_be_asked(place, content_hash):
                raise SchemaUnknown(self, place, content_hash)
            elif locked is None:
                locked = published if published is not None and published.subject == event_type.name else None
        if locked is None:
            return
        if not _has(locked, content_hash):
            raise ContractError(
                f"its schema {content_hash} is none that {event_type.name} has or had in the frozen schemas (now "
                f"{locked.hash}): publish the producer's schemas first, or its version was changed without freezing it"
            )
        event_type.payload.learn(locked.writers)

    def _locked(self, event_type: EventType[object], place: str) -> Locked | None:
        if self._looked_at is None:
            self._look_into_lock()
        found = self._frozen.get(place)
        return found if found is not None and found.subject == event_type.name else None

    def _is_to_be_asked(self, place: str, content_hash: str) -> bool:
        at = self._asked.get((place, content_hash))
        return at is None or self._now() - at >= LOOK_AGAIN

    def _is_time_to_look(self) -> bool:
        return self._looked_at is not None and self._now() - self._looked_at >= LOOK_AGAIN

    def _look_into_lock(self) -> None:
        """A lock that cannot be read just now, perhaps because it is being replaced, leaves what was known."""
        self._looked_at = self._now()
        if self._read is None:
            return
        try:
            lock = self._read()
        except ConfigurationError:
            return
        self._frozen = {path.rpartition(".")[0]: locked for path, locked in lock.schemas.items()}


def _has(locked: Locked, content_hash: str) -> bool:
    return content_hash == locked.hash or content_hash in locked.earlier


def _refuse_other_encoding(event_type: EventType[object], content_type: str | None) -> None:
    """A content type that says nothing certain leaves it to the decoder."""
    wanted, found = event_type.payload.schema.format, _encoding(content_type)
    if found is not None and found != wanted:
        raise ContractError(f"its data is {content_type}, but {event_type.name} is declared here as {wanted}")


def _encoding(content_type: str | None) -> SchemaFormat | None:
    """No content type means JSON; parameters such as a character set do not count."""
    kind = (content_type or "application/json").partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return "json"
    return next((known for known, kinds in ENCODINGS.items() if kind in kinds), None)
