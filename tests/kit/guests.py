"""A hotel whose guests are secret: what tests of secret fields share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from posthouse import App, Event, Payload, Personal, Policy, Service, Tx, subject_erased
from posthouse.trust.secrets import Secrets


class GuestRegistered(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]
    email: Annotated[str, Personal("contact")] = "ada@example.org"
    born: Annotated[int | None, Personal("identity")] = None
    room: str = "12"


class Hotel:
    """A service that hears itself, on some store and broker; `heard` is what its handler saw."""

    def __init__(self, folder: Path, *, store: str = "", broker: str = "", keys: str = "", **options: object) -> None:
        self.folder = folder
        self.service = Service("hotel")
        self.registered = self.service.event("guest.registered.v1", key="guest_id", about="guest_id")(GuestRegistered)
        self.erased = subject_erased(self.service)
        self.heard: list[Event[GuestRegistered]] = []
        self.fails = False
        self.service.on(GuestRegistered, policy=Policy(max_attempts=1))(self.hear)
        self.secrets = Secrets(
            keys=keys or f"sqlite:///{folder}/keys.db",
            master=f"file:{folder}/master.key",
            **{"reads": ["*"], **options},  # type: ignore[arg-type]  # whatever a test gives
        )
        self.app = App(
            self.service,
            store=store or f"sqlite:///{folder}/hotel.db",
            broker=broker or f"embedded:///{folder}/log.db",
            secrets=self.secrets,
        )

    async def hear(self, event: Event[GuestRegistered], tx: Tx) -> None:
        if self.fails:
            raise ValueError(f"no room for {event.data.name}")
        self.heard.append(event)

    async def register(self, guest_id: str, name: str, tenant: str = "t1", **fields: object) -> str:
        async with self.service.transaction(tenant) as tx:
            return tx.publish(GuestRegistered(guest_id=guest_id, name=name, **fields))  # type: ignore[arg-type]
