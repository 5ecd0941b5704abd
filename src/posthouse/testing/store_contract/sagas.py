"""A saga is there once, is changed by one at a time, and remembers each of its turns."""

from __future__ import annotations

import asyncio
from datetime import date

import msgspec
from msgspec.structs import replace

from posthouse.store import Store, Timer
from posthouse.store.sagas import (
    Armed,
    CallOut,
    Done,
    Indexable,
    SagaFilter,
    SagaInput,
    SagaRef,
    SagaRow,
    SagaStatus,
    SagaTurn,
    Said,
    Undoing,
    Waiting,
    indexed_text,
)
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.samples import row as outbox_row
from posthouse.testing.store_contract.steps import failing


class SagaContract(StoreFixtures):
    """What `SagaTable` promises."""

    async def test_a_saga_is_added_once(self, store: Store) -> None:
        assert await added(store, saga("b1"))
        assert not await added(store, replace(saga("b1"), state=b'{"second":true}'))
        assert await added(store, replace(saga("b1"), tenant="t2"))
        assert await added(store, replace(saga("b1"), saga="stay"))
        found = await store.sagas.find(SagaFilter())
        assert [(row.saga, row.tenant, row.id) for row in found] == [
            ("booking", "t1", "b1"),
            ("booking", "t2", "b1"),
            ("stay", "t1", "b1"),
        ]
        assert found[0].state == saga("b1").state

    async def test_what_was_saved_is_what_is_loaded(self, store: Store) -> None:
        began_with = replace(saga("b1"), correlation="c1", parent=SagaRef("group", "g1", 2))
        await added(store, began_with)
        whole = replace(
            began_with,
            status="compensating",
            state='{"guest":"Zażółć 🛎"}'.encode(),
            done=(Done("hold", 1), Done("pay", 2), Done("pay", 3, late=True)),
            deadlines={"expired": Armed("e1", 12.5, late=True)},
            calls=(
                CallOut(
                    step="pay", turn=2, event_id="e2", tries=1, begun_at=1.5, due_at=2.5, error="no", given_up=True
                ),
            ),
            ended_as="completed",
            waiting=(Waiting(event_id="e7", type="a.b.v1", method="pay", since=1.0, until=2.5, key="k", woken=True),),
            undoing=Undoing(of=Done("pay", 2), attempts=2, waiting=True, error="no"),
            reason="it \\ 'rained'",
            note="a note",
            cancelled=True,
            index={"hotel_id": "h1", "nights": "3"},
            tasks={"approve": 12.5, "": 3.0},
            turn=1,
        )
        began = self.clock.now()
        await self.later(7)
        assert await saved(store, whole)
        whole = replace(whole, started_at=began, changed_at=self.clock.now())
        async with store.begin() as tx:
            loaded = await store.sagas.load(tx, "booking", "t1", "b1")
            assert await store.sagas.load(tx, "booking", "t2", "b1") is None
            assert await store.sagas.load(tx, "booking", "t1", "b2") is None
        assert loaded is not None
        assert replace(loaded, number=0) == whole
        assert await store.sagas.find(SagaFilter(saga="booking", tenant="t1", id="b1")) == [loaded]

    async def test_of_each_shape_some_stand_for_all(self, store: Store) -> None:
        for number in range(7):
            await moved(store, replace(saga(f"b{number}"), done=(Done("hold", 1),)))
        await moved(store, replace(saga("odd"), done=(Done("hold", 1), Done("pay", 2))))
        await moved(store, replace(saga("armed"), done=(Done("hold", 1),), deadlines={"expired": Armed("e1", 1.0)}))
        await moved(store, replace(saga("grown"), done=(Done("hold", 1),), state=b'{"guest":"g","more":1}'))
        await moved(store, replace(saga("over"), status="completed"))
        await moved(store, replace(saga("other"), saga="stay"))
        found = await store.sagas.shapes(["booking"], 3)
        assert [(row.id, times) for row, times in found] == [
            ("b0", 5), ("b3", 1), ("b6", 1), ("odd", 1), ("armed", 1), ("grown", 1),
        ]  # fmt: skip
        assert found[3][0].steps == ("hold", "pay")
        assert [times for _, times in await store.sagas.shapes(["booking", "stay"], 100)] == [1] * 11
        ends = await store.sagas.shapes(["booking"], 3, among=2)
        assert [(row.id, times) for row, times in ends] == [("b0", 1), ("b1", 1), ("armed", 1), ("grown", 1)]

    async def test_history_keeps_every_turn_in_order(self, store: Store) -> None:
        await added(store, saga("b1"))
        await added(store, saga("b2"))
        turns = []
        for number in range(1, 12):
            turns.append(turn(number, note=f"n{number}"))
            assert await saved(store, replace(saga("b1"), turn=number), turns[-1])
        assert await store.sagas.history("booking", "t1", "b1") == turns
        assert await store.sagas.history("booking", "t1", "b2") == []
        assert await store.sagas.history("booking", "t2", "b1") == []

    async def test_a_transaction_sees_the_turns_that_it_has_saved(self, store: Store) -> None:
        await added(store, saga("b1"))
        await saved(store, replace(saga("b1"), turn=1))
        async with store.begin() as tx:
            row = await store.sagas.load(tx, "booking", "t1", "b1")
            assert row is not None
            assert await store.sagas.save(tx, replace(row, turn=2), turn(2))
            assert await store.sagas.turns_in(tx, row) == [turn(1), turn(2)]
            assert await store.sagas.turns_in(tx, saga("b1")) == []

    async def test_an_awaited_saga_is_started_with_its_correlation_and_parent(self, store: Store) -> None:
        await added(store, replace(saga("b1"), status="awaited"))
        assert not await added(store, saga("b1")), "whoever starts it meets it"
        await self.later(7)
        async with store.begin() as tx:
            row = await store.sagas.load(tx, "booking", "t1", "b1")
            assert row is not None
            started = replace(row, status="running", correlation="c1", parent=SagaRef("group", "g1"), turn=1)
            await store.sagas.begin(tx, started)
            assert await store.sagas.save(tx, started, turn(1))
            await store.sagas.drop(tx, started)
        (found,) = await store.sagas.find(SagaFilter())
        assert (found.status, found.correlation, found.parent) == ("running", "c1", SagaRef("group", "g1"))
        assert found.started_at == self.clock.now()

    async def test_an_awaited_saga_that_never_came_leaves_nothing(self, store: Store) -> None:
        await added(store, replace(saga("b1"), status="awaited"))
        await saved(store, replace(saga("b1"), status="awaited", turn=1))
        async with store.begin() as tx:
            row = await store.sagas.load(tx, "booking", "t1", "b1")
            assert row is not None
            await store.sagas.drop(tx, row)
        assert await store.sagas.find(SagaFilter()) == []
        assert await added(store, saga("b1"))
        assert await store.sagas.history("booking", "t1", "b1") == []

    async def test_an_event_that_came_too_early_is_kept_whole_until_it_is_taken_out(self, store: Store) -> None:
        await added(store, saga("b1"))
        await added(store, saga("b2"))
        event = replace(held(entry(sequence=None, event_id="e1"), "retrying"), headers={"a": "ż"}, body=b"\x00\xff")
        async with store.begin() as tx:
            first = await store.sagas.load(tx, "booking", "t1", "b1")
            other = await store.sagas.load(tx, "booking", "t1", "b2")
            assert first is not None
            assert other is not None
            await store.sagas.park(tx, first, replace(event, body=b"before"))
            await store.sagas.park(tx, first, event)
            await store.sagas.park(tx, first, replace(event, entry=entry(sequence=None, event_id="e2")))
        async with failing(store) as tx:
            assert await store.sagas.unpark(tx, first, "e1") == event
        async with store.begin() as tx:
            assert await store.sagas.unpark(tx, other, "e1") is None
            assert await store.sagas.unpark(tx, first, "e1") == event
            assert await store.sagas.unpark(tx, first, "e1") is None

    async def test_what_an_event_waits_for_is_not_purged(self, store: Store) -> None:
        await added(store, saga("b1"))
        await ended(store, "b1", status="completed")
        async with store.begin() as tx:
            row = await store.sagas.load(tx, "booking", "t1", "b1")
            assert row is not None
            await store.sagas.park(tx, row, held(entry(sequence=None, event_id="e1"), "retrying"))
        await self.later(20)
        assert await store.sagas.purge(10.0, 10) == 0
        async with store.begin() as tx:
            await store.sagas.unpark(tx, row, "e1")
        assert await store.sagas.purge(10.0, 10) == 1

    async def test_what_waits_for_a_deadline_is_not_purged(self, store: Store) -> None:
        await added(store, saga("b1"))
        ending = replace(saga("b1"), status="completed", turn=1, deadlines={"dispute_over": Armed("e1", 5.0)})
        assert await saved(store, ending)
        await self.later(20)
        assert await store.sagas.purge(10.0, 10) == 0
        assert await saved(store, replace(ending, deadlines={}, turn=2))
        assert await store.sagas.purge(10.0, 10) == 1

    async def test_a_turn_that_was_taken_is_not_taken_again(self, store: Store) -> None:
        await added(store, saga("b1"))
        async with store.begin() as tx:
            await store.timers.set(tx, Timer(name="n", due_at=1.0, row=outbox_row(None)))
        assert await saved(store, replace(saga("b1"), turn=1, state=b'"first"'))
        assert not await saved(store, replace(saga("b1"), turn=1, state=b'"again"'), cancel=["n"])
        assert not await saved(store, replace(saga("b1"), turn=3, state=b'"third"'), cancel=["n"])
        (found,) = await store.sagas.find(SagaFilter())
        assert (found.turn, found.state) == (1, b'"first"')
        assert len(await store.sagas.history("booking", "t1", "b1")) == 1
        assert len(await store.timers.pending()) == 1

    async def test_timers_are_cancelled_with_the_turn_and_only_those_of_its_tenant(self, store: Store) -> None:
        await added(store, saga("b1"))
        async with store.begin() as tx:
            for name, tenant in (("a", "t1"), ("b", "t1"), ("c", "t1"), ("a", "t2")):
                await store.timers.set(tx, Timer(name=name, due_at=1.0, row=outbox_row(None, tenant=tenant)))
        assert await saved(store, replace(saga("b1"), turn=1), cancel=["a", "b", "never was"])
        left = [(timer.name, timer.row.tenant) for timer in await store.timers.pending()]
        assert sorted(left) == [("a", "t2"), ("c", "t1")]

    async def test_what_is_rolled_back_was_never_there(self, store: Store) -> None:
        async with failing(store) as tx:
            assert await store.sagas.add(tx, saga("b1"))
            assert await store.sagas.save(tx, replace(saga("b1"), turn=1), turn(1))
        assert await store.sagas.find(SagaFilter()) == []
        assert await added(store, saga("b1"))
        assert await store.sagas.history("booking", "t1", "b1") == []

    async def test_turns_of_one_saga_follow_each_other_however_many_want_one(self, store: Store, other: Store) -> None:
        await added(store, saga("b1"))

        async def take_turn(through: Store) -> bool:
            async with through.begin() as tx:
                row = await through.sagas.load(tx, "booking", "t1", "b1")
                assert row is not None
                await asyncio.sleep(0)
                return await through.sagas.save(tx, replace(row, turn=row.turn + 1), turn(row.turn + 1))

        assert all(await asyncio.gather(*(take_turn((store, other)[n % 2]) for n in range(10))))
        assert [t.turn for t in await store.sagas.history("booking", "t1", "b1")] == list(range(1, 11))

    async def test_of_many_who_add_one_saga_one_succeeds(self, store: Store, other: Store) -> None:
        answers = await asyncio.gather(*(added((store, other)[n % 2], saga("b1")) for n in range(8)))
        assert sorted(answers) == [False] * 7 + [True]

    async def test_sagas_are_found_by_what_is_asked_page_by_page(self, store: Store) -> None:
        for number in range(7):
            await added(store, replace(saga(f"b{number}"), tenant=f"t{number % 2}"))
        await ended(store, "b3", tenant="t1", status="completed")
        found = await store.sagas.find(SagaFilter(tenant="t1"))
        assert [row.id for row in found] == ["b1", "b3", "b5"]
        assert [row.id for row in await store.sagas.find(SagaFilter(status="completed"))] == ["b3"]
        assert await store.sagas.find(SagaFilter(saga="stay")) == []
        first = await store.sagas.find(SagaFilter(status="running"), limit=4)
        rest = await store.sagas.find(SagaFilter(status="running"), after=first[-1].number, limit=4)
        assert [row.id for row in (*first, *rest)] == ["b0", "b1", "b2", "b4", "b5", "b6"]

    async def test_sagas_are_counted_by_kind_and_status(self, store: Store) -> None:
        assert await store.sagas.counts() == {}
        for number in range(3):
            await added(store, saga(f"b{number}"))
        await added(store, replace(saga("s1"), saga="stay"))
        await ended(store, "b1", status="compensated")
        assert await store.sagas.counts() == {
            ("booking", "running"): 2,
            ("booking", "compensated"): 1,
            ("stay", "running"): 1,
        }

    async def test_only_what_ended_before_is_purged_with_its_history(self, store: Store) -> None:
        for number in range(5):
            await added(store, saga(f"b{number}"))
        for number in range(3):
            await self.later(10)
            await ended(store, f"b{number}", status="completed")
        await self.later(5)
        late = replace(saga("b0"), status="completed", turn=2, note="came late")
        assert await saved(store, late), "and it ended when it ended"
        await saved(store, replace(saga("b3"), turn=1, status="partial"))
        assert await store.sagas.purge(10.0, 1) == 1
        assert [row.id for row in await store.sagas.find(SagaFilter())] == ["b1", "b2", "b3", "b4"]
        assert await store.sagas.purge(10.0, 10) == 1
        assert await store.sagas.purge(10.0, 10) == 0
        assert [row.id for row in await store.sagas.find(SagaFilter())] == ["b2", "b3", "b4"]
        assert await store.sagas.history("booking", "t1", "b0") == []
        assert len(await store.sagas.history("booking", "t1", "b2")) == 1

    async def test_a_tombstone_tells_who_it_was_and_how_it_ended_and_nothing_else(self, store: Store) -> None:
        await added(store, replace(saga("b1"), correlation="c1", parent=SagaRef("group", "g1")))
        whole = replace(
            saga("b1"),
            turn=1,
            status="compensated",
            reason="no room",
            note="a guest",
            done=(Done("hold", 1),),
            index={"guest": "Ann"},
        )
        assert await saved(store, whole)
        await self.later(10)
        ended_at = self.clock.now() - 10
        assert await store.sagas.purge(5.0, 10) == 1
        assert not await added(store, saga("b1")), "one saga per id, also when it is forgotten what it did"
        assert await store.sagas.counts() == {}
        assert await store.sagas.find(SagaFilter()) == []
        assert await store.sagas.find(SagaFilter(where={"guest": "Ann"}, tombstones=True)) == []
        (found,) = await store.sagas.find(SagaFilter(tombstones=True))
        async with store.begin() as tx:
            assert await store.sagas.load(tx, "booking", "t1", "b1") == found
        assert found.tombstone
        assert found.purged_at == self.clock.now()
        assert (found.status, found.reason, found.turn, found.ended_at) == ("compensated", "no room", 1, ended_at)
        assert (found.correlation, found.parent) == ("c1", SagaRef("group", "g1"))
        assert (found.state, found.done, found.note, found.index) == (b"{}", (), "", {})

    async def test_tombstones_are_deleted_by_an_age_of_their_own(self, store: Store) -> None:
        for number in range(3):
            await added(store, saga(f"b{number}"))
            await ended(store, f"b{number}", status="completed")
            await self.later(10)
        assert await store.sagas.forget(5.0, 10) == 0, "of whom more is left than a tombstone, none is deleted"
        assert await store.sagas.purge(5.0, 10) == 3
        assert await saved(store, replace(saga("b0"), turn=2, status="completed")), "what came late is noted"
        assert (await store.sagas.find(SagaFilter(id="b0", tombstones=True)))[0].tombstone
        assert await store.sagas.forget(15.0, 1) == 1
        assert await store.sagas.history("booking", "t1", "b0") == []
        assert await store.sagas.forget(15.0, 10) == 1
        assert [row.id for row in await store.sagas.find(SagaFilter(tombstones=True))] == ["b2"]
        assert await added(store, saga("b0"))

    async def test_one_id_may_have_several_attempts_and_the_newest_counts(self, store: Store) -> None:
        first = replace(saga("b1"), correlation="c1")
        second = replace(saga("b1"), attempt=2, correlation="c2")
        assert await added(store, first)
        assert await saved(store, replace(first, turn=1, status="cancelled"), turn(1, "first"))
        assert await added(store, second)
        assert not await added(store, second)
        assert await saved(store, replace(second, turn=1, state=b'"second"'), turn(1, "second"))
        async with store.begin() as tx:
            newest = await store.sagas.load(tx, "booking", "t1", "b1")
            named = await store.sagas.load(tx, "booking", "t1", "b1", attempt=1)
            correlated = await store.sagas.load(tx, "booking", "t1", "b1", correlation="c1")
            unknown = await store.sagas.load(tx, "booking", "t1", "b1", correlation="c7")
            assert await store.sagas.load(tx, "booking", "t1", "b1", attempt=3) is None
        assert [row and row.attempt for row in (newest, named, correlated, unknown)] == [2, 1, 1, 2]
        assert named is not None
        assert (named.status, named.state) == ("cancelled", first.state), "a turn of one is not one of the other"
        assert [t.note for t in await store.sagas.history("booking", "t1", "b1")] == ["second"]
        assert [t.note for t in await store.sagas.history("booking", "t1", "b1", attempt=1)] == ["first"]
        assert [row.attempt for row in await store.sagas.find(SagaFilter(id="b1", attempt=1))] == [1]

    async def test_whoever_waits_for_one_that_begins_again_is_given_the_new_attempt(
        self, store: Store, other: Store
    ) -> None:
        await added(store, saga("b1"))
        await ended(store, "b1", status="cancelled")

        async def event() -> int | None:
            async with other.begin() as tx:
                row = await other.sagas.load(tx, "booking", "t1", "b1", correlation="of a stranger")
                return None if row is None else row.attempt

        async with store.begin() as tx:
            assert await store.sagas.load(tx, "booking", "t1", "b1")
            waiting = asyncio.create_task(event())
            await asyncio.wait({waiting}, timeout=0.1)
            assert not waiting.done()
            assert await store.sagas.add(tx, replace(saga("b1"), attempt=2))
        assert await waiting == 2

    async def test_children_are_found_by_their_parent(self, store: Store) -> None:
        parent = SagaRef("group", "g1")
        for id, of in (("b1", parent), ("b2", None), ("b3", parent), ("b4", SagaRef("group", "g1", 2))):
            await added(store, replace(saga(id), parent=of))
        assert [row.id for row in await store.sagas.find(SagaFilter(parent=parent))] == ["b1", "b3"]
        assert await store.sagas.find(SagaFilter(parent=SagaRef("stay", "g1"))) == []

    async def test_sagas_are_found_by_what_they_are_indexed_by(self, store: Store) -> None:
        long = "Zażółć" * 100
        fields: list[dict[str, Indexable]] = [
            {"policy": "p1", "claim": 7},
            {"policy": "p1", "claim": 8},
            {"policy": "p2", "claim": 7, "nul": "a\x00b"},
            {"policy": long, "due": date(2026, 3, 29), "quote": "it's \\ {} ?"},
        ]
        for number, index in enumerate(fields):
            row = replace(saga(f"b{number}"), index={name: indexed_text(value) for name, value in index.items()})
            await added(store, row)
            assert await saved(store, replace(row, turn=1))
        asked: list[tuple[dict[str, Indexable], list[str]]] = [
            ({"policy": "p1"}, ["b0", "b1"]),
            ({"claim": 7}, ["b0", "b2"]),
            ({"claim": 7, "policy": "p2"}, ["b2"]),
            ({"claim": 8, "policy": "p2"}, []),
            ({"policy": long}, ["b3"]),
            ({"nul": "a\x00b"}, ["b2"]),
            ({"due": date(2026, 3, 29)}, ["b3"]),
            ({"quote": "it's \\ {} ?"}, ["b3"]),
        ]
        for where, ids in asked:
            assert [row.id for row in await store.sagas.find(SagaFilter(where=where))] == ids, where
            assert [
                row.id for row in await store.sagas.find(SagaFilter(where=where, tenant="t1", saga="booking"))
            ] == ids
        assert await store.sagas.find(SagaFilter(where={"policy": "p1"}, tenant="t2")) == []
        assert [row.id for row in await store.sagas.find(SagaFilter(where={"policy": "p1"}), after=1)] == ["b1"]

    async def test_the_index_follows_the_state(self, store: Store) -> None:
        await added(store, saga("b1"))
        for number, index in enumerate(({"a": "1", "b": "1"}, {"a": "2"}, {"a": "2"}, {}), 1):
            assert await saved(store, replace(saga("b1"), turn=number, index=index))
            for field, value in (("a", "1"), ("a", "2"), ("b", "1")):
                found = await store.sagas.find(SagaFilter(where={field: value}))
                assert len(found) == (index.get(field) == value), (number, field, value)
        async with failing(store) as tx:
            assert await store.sagas.save(tx, replace(saga("b1"), turn=5, index={"a": "5"}), turn(5))
        assert await store.sagas.find(SagaFilter(where={"a": "5"})) == []
        assert not await saved(store, replace(saga("b1"), turn=9, index={"a": "9"}))
        assert await store.sagas.find(SagaFilter(where={"a": "9"})) == []


def saga(id: str) -> SagaRow:
    """A saga that was just started."""
    return SagaRow(saga="booking", tenant="t1", id=id, state=b'{"guests":2}')


def turn(number: int, note: str = "") -> SagaTurn:
    """A turn with something in every field."""
    return SagaTurn(
        turn=number,
        at=float(number),
        input=SagaInput(kind="event", type="pay.paid.v1", event_id=f"e{number}", data=msgspec.Raw(b'{"cents":7}')),
        status="running",
        method="paid",
        published=(Said(type="a.done.v1", event_id="x", data=msgspec.Raw(b'{"a":"\\u0000"}'), after=1.0),),
        deadlines_set={"expired": 30.0},
        deadlines_cleared=("held",),
        steps_done=("paid",),
        note=note,
        state=msgspec.Raw(b'{"guests":2}'),
    )


async def added(store: Store, row: SagaRow) -> bool:
    async with store.begin() as tx:
        return await store.sagas.add(tx, row)


async def saved(store: Store, row: SagaRow, record: SagaTurn | None = None, cancel: list[str] | None = None) -> bool:
    async with store.begin() as tx:
        return await store.sagas.save(tx, row, record or turn(row.turn), cancel=cancel or [])


async def moved(store: Store, row: SagaRow) -> None:
    """A saga that was started and took a turn."""
    await added(store, msgspec.structs.replace(row, status="running"))
    assert await saved(store, replace(row, turn=1))


async def ended(store: Store, id: str, *, status: SagaStatus, tenant: str = "t1") -> None:
    row = replace(saga(id), tenant=tenant, status=status, turn=1)
    assert await saved(store, row)
