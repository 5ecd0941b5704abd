"""Reading: from the rows of a stream to typed events, old versions lifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, cast

from posthouse.contracts import EventType
from posthouse.contracts.versions import Cast, Casts, chain, lift
from posthouse.errors import ContractError, DecodeError, FrameRefused, did_you_mean
from posthouse.events import Event, decode_any
from posthouse.seam import SchemaGuard, Seam
from posthouse.seam.inward import open_data
from posthouse.store.streams import StreamEvent

E = TypeVar("E")

STREAM_VERSION = "streamversion"
"""The extension of each published event that says which of its stream it is, from 1 on."""

Way = tuple[EventType[object], Sequence[Cast]]
"""The type that bytes are of, and the casts that lift it."""


class Reader(Generic[E]):
    """Reads the events of one aggregate. `upcasts` may grow while the service is declared."""

    def __init__(self, events: Sequence[EventType[object]], upcasts: Casts, sight: SchemaGuard) -> None:
        self._wanted: Mapping[str, EventType[object]] = {known.name: known for known in events}
        self._upcasts = upcasts
        self._sight = sight
        self._ways: dict[str, Way] = {}

    def read(self, row: StreamEvent, envelope: Event[bytes] | None = None) -> Event[E]:
        """The event with its payload in the version that the aggregate knows. ContractError, which names stream and
        version, when it cannot be. `envelope`: that of the row, where its data had to be opened first."""
        try:
            event = envelope or decode_any(row.headers, row.body)
            event_type, steps = self._way(row.type)
            self._sight.check(event_type, event)
            data = lift(steps, event_type.payload.decode(event.data))
        except (ContractError, DecodeError) as error:
            raise ContractError(f"{row.name}, version {row.version}: {error}") from error
        return cast("Event[E]", event.with_data(data))

    async def open(self, seam: Seam, row: StreamEvent) -> Event[E]:
        """`read`, of data that is fetched and decrypted first."""
        try:
            envelope = await open_data(seam, decode_any(row.headers, row.body))
        except (DecodeError, FrameRefused) as error:
            raise ContractError(f"{row.name}, version {row.version}: {error}") from error
        return self.read(row, envelope)

    def _way(self, name: str) -> Way:
        found = self._ways.get(name)
        if found is None:
            found = self._ways[name] = self._find_way(name)
        return found

    def _find_way(self, name: str) -> Way:
        if name in self._wanted:
            return self._wanted[name], ()
        if steps := chain(self._upcasts, name, self._wanted):
            return steps[0].source, steps
        raise ContractError(
            f"{name} is none of the events of this aggregate, and nothing lifts it to one: keep it among events=…, or declare "
            f"an upcast from it.{did_you_mean(name, self._wanted)}"
        )
