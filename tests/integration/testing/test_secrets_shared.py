"""Services of two Apps with the same secrets, in one harness on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from posthouse import App, Event, Service, Tx
from posthouse.testing import Harness
from tests.kit.guests import GuestRegistered, Hotel


async def test_services_that_were_given_the_same_secrets_share_a_harness_on_one_store(
    tmp_path: Path, posthouse_store: str
) -> None:
    first, other = Hotel(tmp_path), Service("other")
    App(other, store=f"sqlite:///{tmp_path}/other.db", broker=f"embedded:///{tmp_path}/log.db", secrets=first.secrets)
    seen: list[str] = []

    @other.on(GuestRegistered, consumer="other")
    async def see(event: Event[GuestRegistered], tx: Tx) -> None:
        seen.append(event.data.name)

    async with Harness(first.service, other, store=posthouse_store) as harness:
        await first.register("g1", "Ada")
        await harness.settled()
    assert (seen, [event.data.name for event in first.heard]) == (["Ada"], ["Ada"])
