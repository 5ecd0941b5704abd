"""PORT: a world that the platform lives in. The director asks it to let things settle, to let time pass, and to take a
service away for a while."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class World(Protocol):
    """Where the services run, and by which clock."""

    @property
    def exact(self) -> bool:
        """Whether each act finds what the one before has left behind. Where time is real, some things take longer: then a
        person who is refused lets it be."""
        ...

    @property
    def kills(self) -> int:
        """How often a process, or what stands for one, was killed."""
        ...

    def now(self) -> float:
        """Seconds since 1970, by the calendar of the house."""
        ...

    async def settle(self) -> None:
        """Wait until nothing is in flight: all that was said is applied or held. Something may be killed meanwhile."""
        ...

    async def live_up_to(self, moment: float) -> None:
        """Let everything happen that becomes due before then; the calendar stops at the last of it."""
        ...

    async def until(self, moment: float) -> None:
        """Turn the calendar on to then, with everything that becomes due on the way."""
        ...

    async def let_pass(self, seconds: float) -> None:
        """Let so many seconds of the house pass, with everything that becomes due in them."""
        ...

    def away(self, service: str) -> AbstractAsyncContextManager[None]:
        """A service, and whoever shares its process, is down inside the block; it is up and settled afterwards."""
        ...
