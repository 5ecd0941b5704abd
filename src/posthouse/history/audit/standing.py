"""Standing: how far a log is."""

from __future__ import annotations

import msgspec


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
