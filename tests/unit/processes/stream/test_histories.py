"""Whatever the history, what is loaded is what its events come to."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.app import app_of
from posthouse.processes import Loaded
from posthouse.processes.stream import folded
from tests.unit.processes.stream.folios import Billing, Charged, Folio, FolioClosed, FolioOpened, evolve

happened = st.one_of(
    st.builds(FolioOpened, st.just("f1"), st.text(st.characters(codec="utf-8", exclude_characters="\x00"))),
    st.builds(Charged, st.just("f1"), st.integers(-(2**53), 2**53)),
    st.just(FolioClosed("f1")),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(happened, min_size=1, max_size=4), max_size=8),
    st.one_of(st.none(), st.integers(1, 7)),
    st.booleans(),
)
def test_any_history_in_any_portions_loads_as_its_events_come_to(
    portions: list[list[FolioOpened | Charged | FolioClosed]], snapshot_every: int | None, drop: bool
) -> None:
    events = [event for portion in portions for event in portion]
    whole = folded(evolve, Folio(), events)

    async def live() -> None:
        billing = Billing(snapshot_every=snapshot_every)
        await app_of(billing.service).open()
        for number, portion in enumerate(portions):
            if number % 2:
                await billing.folios.execute("f1", lambda folio, portion=portion: portion, tenant="t1")  # type: ignore[misc]  # bound at once
            else:
                async with billing.service.transaction("t1") as tx:
                    await billing.folios.append(tx, "f1", portion, expected="any")
        if drop:
            await app_of(billing.service).store.streams.drop_snapshots()
        async with billing.service.transaction("t1") as tx:
            assert await billing.folios.load(tx, "f1") == Loaded(whole, len(events))
            assert [event.data for event in await billing.folios.history(tx, "f1")] == events
        await billing.service.aclose()

    asyncio.run(live())


@given(st.lists(happened), st.integers(0, 20))
def test_a_history_may_be_folded_in_two_parts(events: list[FolioOpened | Charged | FolioClosed], cut: int) -> None:
    first = folded(evolve, Folio(), events[:cut])
    assert folded(evolve, first, events[cut:]) == folded(evolve, Folio(), events)
