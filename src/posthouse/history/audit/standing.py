"""Standing: how far a log is, without reading its events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.errors import AuditDamaged
from posthouse.history.audit.batches import EVENTS, first_in, read_batch
from posthouse.history.audit.checkpoints import newest
from posthouse.history.audit.notes import NoteError, Verifier
from posthouse.history.audit.place import Place


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`events` are logged, `signed` of them under the newest checkpoint, at `path`, made `age` seconds ago; `copied` is the size of the
    newest one in the second place. None where there is none."""

    events: int
    signed: int
    path: str | None
    age: float | None
    copied: int | None
    has_second: bool

    def problems(self, within: float) -> list[str]:
        """What somebody has to look at, one sentence each. `within`: seconds after which a checkpoint is late."""
        if self.age is None:
            return ["nothing was ever signed: `posthouse audit checkpoint` does it"] if self.events else []
        found = []
        if self.age > within:
            found.append(
                f"the newest checkpoint is {self.age / 3600:,.1f} hours old, and {self.events - self.signed:,} events wait for the "
                "next: look for the process that runs the audit log"
            )
        if self.events < self.signed:
            found.append(
                f"{self.signed:,} events were signed, and {self.events:,} are there: run `posthouse audit verify`"
            )
        if self.has_second and self.copied != self.signed:
            found.append(
                f"the second place has a checkpoint of {self.copied or 0:,} events, and not the one of {self.signed:,}"
            )
        return found


def standing(place: Place, second: Place | None, keys: Sequence[Verifier], now: float) -> Standing:
    """How it stands. AuditDamaged where a newest checkpoint cannot be believed."""
    try:
        latest, copied = newest(place, keys), None if second is None else newest(second, keys)
    except NoteError as error:
        raise AuditDamaged(f"the newest checkpoint in {place.name}: {error}") from error
    last = max((path for path in place.list(EVENTS) if first_in(path) is not None), default=None)
    events = 0
    if last is not None:
        batch = read_batch(place.get(last) or b"")
        events = batch.first + len(batch.events)
    return Standing(
        events=events,
        signed=latest.checkpoint.size if latest else 0,
        path=latest.path if latest else None,
        age=max(0.0, now - latest.at) if latest else None,
        copied=copied.checkpoint.size if copied else None,
        has_second=second is not None,
    )
