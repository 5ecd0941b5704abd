"""Melmastoon's core, with the power cut after every step in turn, between a vendor's answer and its record too: each run ends as
the one without a cut, in our facts and in the vendors' own books."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from melmastoon.billing import billing
from melmastoon.billing.stay import post_extra
from melmastoon.housekeeping import housekeeping
from melmastoon.inventory import inventory
from melmastoon.lock_integration import lock_integration
from melmastoon.payment import payment
from melmastoon.payment.cash import reconcile_cash
from melmastoon.pricing import pricing
from melmastoon.vendors.weather import Mood, Scripted
from melmastoon.vendors.world import World, pretending, world
from posthouse import Service
from posthouse.events import decode_any
from posthouse.testing import Harness, assert_survives_crashes
from tests.unit.melmastoon.stay import (
    cancelled,
    captured,
    check_in_started,
    check_out_started,
    checked_in,
    committed,
    confirmed,
    dates_changed,
    delta,
    failed,
    held,
    reallocated,
    refunded,
    room,
)

Story = Callable[[Harness], Awaitable[None]]
Moods = Mapping[str, Sequence[Mood]]

FAULTS: Moods = {
    "capture": ["lost"],
    "refund": ["lost", "error"],
    "put": ["lost", "error"],
    "revoke": ["error", "lost"],
}
"""Short enough to be over within one run of ours, however often it is cut short."""


@pytest.fixture
def worlds() -> Iterator[ExitStack]:
    """Each run meets vendors with empty books."""
    with ExitStack() as stack:
        yield stack


async def hear(h: Harness, *facts: object) -> None:
    """One fact after the other, each with all that follows from it."""
    for fact in facts:
        await h.publish(fact)
        await h.settled()


async def the_end(h: Harness) -> object:
    """The facts, each once, and what the vendors did."""
    frames = [stored.frame for log in h.broker.log.topics.values() for stored in log]
    events = {event.id: event for event in (decode_any(frame.headers, frame.body) for frame in frames)}
    return {
        "facts": sorted((event.type, event.data) for event in events.values()),
        "paid": world().ledger.charged("t1"),
        "open doors": world().ledger.opening("t1"),
        "held": [len(await h.held(service)) for service in h.services],
    }


async def _money(h: Harness) -> None:
    await hear(h, held(), committed(), cancelled(refund=5_000))


async def _cheaper(h: Harness) -> None:
    await hear(h, held(), committed(), delta(-3_000), cancelled(refund=20_000))


async def _cash(h: Harness) -> None:
    await hear(h, held(rail="cash_pending"), committed(), delta(3_000))
    async with payment.transaction("t1") as tx:
        await reconcile_cash(tx, "b1", staff_id="s1")
    await h.settled()


async def _key(h: Harness) -> None:
    await hear(
        h, confirmed(), reallocated(first=2, last=5, room_id="r2"), check_in_started(), check_out_started(asks="key")
    )


async def _late_key(h: Harness) -> None:
    await hear(h, confirmed(cash=True), check_in_started(), cancelled())


async def _folio(h: Harness) -> None:
    await hear(h, confirmed(), captured(), delta(3_000), captured("delta", "c1", 3_000), check_in_started())
    async with billing.transaction("t1") as tx:
        await post_extra(tx, "b1", line_id="bar-1", amount_cents=700)
    await hear(h, refunded("ref-1", 500), check_out_started(), failed("balance", "inv-b1-1", 700))
    await hear(h, check_out_started(attempt=2), captured("balance", "inv-b1-2", 700))


async def _rooms(h: Harness) -> None:
    await hear(h, room(), held("b1"), held("b2", first=2, last=4), dates_changed("b1", first=3, last=5))
    await hear(h, held("b3"), dates_changed("b3", first=3, last=4, change_id="c3"), cancelled("b1"))


pytestmark = pytest.mark.timeout(300)

STORIES: dict[str, tuple[Story, Service]] = {
    "money is taken and given back": (_money, payment),
    "a cheaper stay is cancelled": (_cheaper, payment),
    "cash is promised and counted": (_cash, payment),
    "a key follows its booking and ends": (_key, lock_integration),
    "a key is issued at the desk and ends": (_late_key, lock_integration),
    "a folio is filled and closed": (_folio, billing),
    "rooms are taken, swapped and given back": (_rooms, inventory),
}


@pytest.mark.parametrize(("story", "service"), STORIES.values(), ids=STORIES)
async def test_a_power_cut_after_any_step_changes_no_ending(story: Story, service: Service, worlds: ExitStack) -> None:
    async def scenario(h: Harness) -> None:
        worlds.enter_context(pretending(World(weather=Scripted(moods=FAULTS))))
        await story(h)

    crashes = await assert_survives_crashes(scenario, service, end=the_end)
    assert crashes.runs >= 10


@pytest.mark.slow
async def test_a_power_cut_of_all_six_services_changes_no_ending(worlds: ExitStack) -> None:
    async def scenario(h: Harness) -> None:
        worlds.enter_context(pretending(World(weather=Scripted(moods=FAULTS))))
        await hear(h, room(), held(), confirmed(), dates_changed(first=1, last=4), check_in_started(), checked_in())
        await hear(h, check_out_started(), check_out_started(asks="key"))

    services = (inventory, pricing, payment, billing, lock_integration, housekeeping)
    crashes = await assert_survives_crashes(scenario, *services, end=the_end, every=9)
    assert crashes.runs >= 10
