"""A timer fires once, in its time, and is set with its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from posthouse.clock import new_id
from posthouse.events import CODECS, Codec, Event, decode_any, timestamp
from posthouse.store import OutboxRow, Store, Timer, Transaction
from posthouse.store.inbox import drawn_at
from posthouse.store.timers import PUT_BACK
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import drawn, row
from posthouse.testing.store_contract.steps import drain, failing


class TimerContract(StoreFixtures):
    """What `TimerTable` promises."""

    async def test_a_delay_goes_by_the_clock_of_the_store_not_by_that_of_the_sender(self, store: Store) -> None:
        now = self.clock.now()
        await set_timer(store, Timer(name="slow clock", due_at=now - 7_000, after=60.0, row=row("k")))
        await set_timer(store, Timer(name="fast clock", due_at=now + 7_000, after=60.0, row=row("k")))
        assert await store.timers.fire(10) == 0
        await self.later(61)
        assert await store.timers.fire(10) == 2

    async def test_whoever_adds_the_rows_of_due_timers_gets_them_as_they_were_set_once(self, store: Store) -> None:
        rows = [row("a"), row("b"), row("a")]
        for place, one in enumerate(rows):
            await set_timer(store, Timer(name=one.event_id, due_at=self.clock.now() - 10 + place, row=one))
        got: list[OutboxRow] = []

        async def append(tx: Transaction, due: Sequence[OutboxRow]) -> Collection[str]:
            got.extend(due)
            await store.outbox.append(tx, due)
            return ()

        assert await store.timers.fire(2, append) == 2
        assert await store.timers.fire(2, append) == 1
        assert await store.timers.fire(2, append) == 0
        assert [(one.event_id, one.body) for one in got] == [(one.event_id, one.body) for one in rows]
        assert {one.event_id for one in await drain(store)} == {one.event_id for one in rows}

    async def test_a_timer_whose_row_is_left_is_due_again_later_and_holds_nobody_up(self, store: Store) -> None:
        rows = [row("a"), row("b"), row("c")]
        for place, one in enumerate(rows):
            await set_timer(store, Timer(name=one.event_id, due_at=self.clock.now() - 10 + place, row=one))

        async def append(tx: Transaction, due: Sequence[OutboxRow]) -> Collection[str]:
            await store.outbox.append(tx, [one for one in due if one != rows[0]])
            return [one.event_id for one in due if one == rows[0]]

        for _ in rows:
            await store.timers.fire(1, append)
        assert [one.event_id for one in await drain(store)] == [one.event_id for one in rows[1:]]
        (left,) = await store.timers.pending()
        assert (left.name, left.row) == (rows[0].event_id, rows[0])
        assert left.due_at > self.clock.now() + PUT_BACK - 5

    async def test_timers_whose_rows_could_not_be_added_are_still_there(self, store: Store) -> None:
        await set_timer(store, Timer(name="t", due_at=self.clock.now() - 1, row=row("a")))

        async def append(tx: Transaction, due: Sequence[OutboxRow]) -> Collection[str]:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.timers.fire(2, append)
        assert await store.timers.fire(2) == 1

    async def test_a_moment_is_one_of_the_clock_of_the_store(self, store: Store) -> None:
        async with store.begin() as tx:
            assert abs(await store.timers.now(tx) - self.clock.now()) < 5

    async def test_a_timer_that_is_hastened_is_due_now_and_no_other_is(self, store: Store) -> None:
        for name in ("a", "b"):
            await set_timer(store, Timer(name=name, due_at=self.clock.now() + 60, row=row("k", event_id=name)))
        async with failing(store) as tx:
            assert await store.timers.hasten(tx, "t1", "b")
        async with store.begin() as tx:
            assert await store.timers.hasten(tx, "t1", "a")
            assert not await store.timers.hasten(tx, "t2", "b")
            assert not await store.timers.hasten(tx, "t1", "never was")
        assert await store.timers.fire(10) == 1
        assert [found.event_id for found in await drain(store)] == ["a"]

    async def test_a_timer_fires_once_however_many_ask(self, store: Store, other: Store) -> None:
        for number in range(10):
            await set_timer(store, Timer(name=f"n{number}", due_at=self.clock.now() + 5, row=row("k")))
        assert await store.timers.fire(100) == 0
        await self.later(5)
        fired = 0
        async with asyncio.timeout(20):
            while (await store.counts()).timers:  # who finds another scheduler at work may leave it to that one
                fired += sum(await asyncio.gather(*((store, other)[n % 2].timers.fire(3) for n in range(8))))
        assert fired == 10
        assert [found.sequence for found in await drain(store)] == list(range(1, 11))
        assert (await store.counts()).timers == 0

    async def test_timers_fire_in_the_order_of_their_times(self, store: Store) -> None:
        for name, due_at in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
            await set_timer(store, Timer(name=name, due_at=due_at, row=row("k", event_id=name)))
        assert [timer.name for timer in await store.timers.pending()] == ["early", "middle", "late"]
        assert await store.timers.next_due() == 1.0 - self.clock.now()
        assert await store.timers.fire(2) == 2
        assert [found.event_id for found in await drain(store)] == ["early", "middle"]

    @pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
    async def test_what_gets_a_number_draws_its_id_when_it_fires_and_the_rest_keeps_its_own(
        self, store: Store, codec: Codec
    ) -> None:
        """A number that is given again, by a store that was put back, is told by its id: it must not be of long ago."""
        for number, key in enumerate(("k", None)):
            armed = drawn(1_000 + number)
            event = Event(
                id=armed, type="shop.orders.order.moved.v1", source="/shop", data=b'{"id":"x"}', time=timestamp(1.0),
                tenant="t1", key=key, correlation=armed, extensions={"dualof": armed}, content_type="application/json",
            )  # fmt: skip
            encoded = codec.encode(event)
            due = row(key, event_id=armed, body=encoded.body, headers=dict(encoded.headers))
            await set_timer(store, Timer(name=armed, due_at=1.0, row=due))
        before = drawn_at(new_id())
        assert await store.timers.fire(10) == 2
        numbered, alone = sorted(await drain(store), key=lambda found: found.key is None)
        assert before - 1_000 <= drawn_at(numbered.event_id) <= drawn_at(new_id()) + 1_000
        assert alone.event_id == drawn(1_001)
        for found, armed in ((numbered, drawn(1_000)), (alone, drawn(1_001))):
            read = decode_any(found.headers, found.body)
            assert read.id == found.event_id
            assert (read.correlation, read.extensions, read.data) == (armed, {"dualof": armed}, b'{"id":"x"}')

    async def test_a_timer_never_fires_early(self, store: Store) -> None:
        for name, after in (("due", 0.0), ("early", 0.5)):
            await set_timer(store, Timer(name=name, due_at=self.clock.now() + after, row=row("k", event_id=name)))
        assert await store.timers.fire(10) == 1
        assert [found.event_id for found in await drain(store)] == ["due"]
        assert [timer.name for timer in await store.timers.pending()] == ["early"]

    async def test_a_timer_with_the_same_name_replaces_the_first(self, store: Store) -> None:
        first, second = row("k", headers={"a": "b"}), row("other", idempotency_key="i", numbered=False)
        await set_timer(store, Timer(name="n", due_at=1.0, row=first))
        await set_timer(store, moved := Timer(name="n", due_at=2.0, row=second))
        await set_timer(store, Timer(name="n", due_at=3.0, row=row("k", tenant="t2")))
        assert await store.timers.pending("t1") == [moved]
        assert len(await store.timers.pending()) == 2

    async def test_a_cancelled_timer_never_fires(self, store: Store) -> None:
        await set_timer(store, Timer(name="n", due_at=1.0, row=row("k")))
        async with store.begin() as tx:
            assert not await store.timers.cancel(tx, "t2", "n")
            assert await store.timers.cancel(tx, "t1", "n")
            assert not await store.timers.cancel(tx, "t1", "n")
        assert await store.timers.fire(10) == 0
        assert await store.timers.next_due() is None

    async def test_a_timer_is_found_and_cancelled_by_its_name_only_while_it_says_what_was_seen(
        self, store: Store
    ) -> None:
        first, second = row("k"), row("k")
        await set_timer(store, Timer(name="n", due_at=1.0, row=first))
        await set_timer(store, moved := Timer(name="n", due_at=2.0, row=second))
        assert await store.timers.get("t1", "n") == moved
        assert (await store.timers.get("t1", "other"), await store.timers.get("t2", "n")) == (None, None)
        async with store.begin() as tx:
            assert not await store.timers.cancel(tx, "t1", "n", event_id=first.event_id)
            assert await store.timers.cancel(tx, "t1", "n", event_id=second.event_id)
        assert await store.timers.get("t1", "n") is None

    async def test_a_timer_is_set_with_its_transaction_or_not_at_all(self, store: Store) -> None:
        async with failing(store) as tx:
            await store.timers.set(tx, Timer(name="n", due_at=1.0, row=row("k")))
        assert await store.timers.pending() == []


async def set_timer(store: Store, timer: Timer) -> None:
    async with store.begin() as tx:
        await store.timers.set(tx, timer)
