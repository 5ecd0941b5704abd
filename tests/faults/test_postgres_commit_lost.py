"""Faults 6 and 7: the connection is lost during COMMIT. Nobody is told a thing that may not be so."""

from __future__ import annotations

from typing import Literal

import pytest

from posthouse import Event, Policy, Tx
from posthouse.app import app_of
from posthouse.errors import CommitUnknown, StoreUnavailable
from posthouse.store import HeldFilter
from tests.faults.plant import Made, at_work, book, effects, plant, say, settled
from tests.faults.wire import wired

Cut = Literal["before", "after"]


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_producer_whose_commit_got_no_answer_is_told_so_and_saying_it_again_makes_one_event(
    postgres_url: str, cut: Cut
) -> None:
    service = plant()
    service.on(Made)(book)
    async with wired(postgres_url) as (wire, url), at_work(service, url, only=()):
        await say(service, "k", 1)
        wire.armed = cut
        with pytest.raises(CommitUnknown, match="may or may not have happened"):
            await say(service, "k", 2)
        committed = (await app_of(service).store.counts()).committed["plant.thing"]
        assert committed == (1 if cut == "before" else 2)
        await say(service, "k", 2, 3)
        assert (await app_of(service).store.counts()).committed["plant.thing"] == 3
        assert wire.cuts == 1
    async with at_work(service, postgres_url):
        await settled(service)
        assert await effects(service, "k") == [1, 2, 3]


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_an_event_whose_handlers_commit_got_no_answer_is_delivered_again_and_applied_once(
    postgres_url: str, cut: Cut
) -> None:
    service, runs = plant(), list[int]()
    async with wired(postgres_url) as (wire, url):

        @service.on(Made, policy=Policy(first_delay=0.05, last_delay=0.1))
        async def handle(event: Event[Made], tx: Tx) -> None:
            runs.append(event.data.number)
            await book(event, tx)
            if event.data.number == 2 and runs.count(2) == 1:
                wire.armed = cut

        async with at_work(service, url):
            for number in (1, 2, 3):
                while True:  # our own commit may be the one that is cut
                    try:
                        await say(service, "k", number)
                        break
                    except (CommitUnknown, StoreUnavailable):
                        continue
            await settled(service)
            assert await effects(service, "k") == [1, 2, 3]
            assert wire.cuts == 1
            assert await app_of(service).store.held.find(HeldFilter()) == []
