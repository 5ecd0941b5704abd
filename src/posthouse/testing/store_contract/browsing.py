"""Lists for people: whatever is asked for, the pages hold each thing that fits once, in order, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from posthouse.store import BLOCKING, HeldEvent, HeldFilter, HeldState, Store, Timer
from posthouse.store.actions import Action, ActionFilter, of_item
from posthouse.store.browsing import BEHIND, Bounded, OutboxFilter
from posthouse.store.sagas import SagaFilter, SagaRow, SagaStatus
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held
from posthouse.testing.store_contract.samples import row as outbox_row
from posthouse.testing.store_contract.steps import claim, hold

T = TypeVar("T")

STATES: Sequence[HeldState] = ("retrying", "dead", "quarantined", "skipped")
FAILURES = ("", "ValueError in shop/orders.py:charge", "KeyError in shop/orders.py:ship")

FILTERS = (
    HeldFilter(),
    HeldFilter(consumer="billing"),
    HeldFilter(state="dead"),
    HeldFilter(topic="shop.stock"),
    HeldFilter(consumer="shipping", state="retrying"),
    HeldFilter(fingerprint=FAILURES[1]),
    HeldFilter(fingerprint=FAILURES[1], consumer="billing", state="dead"),
    HeldFilter(fingerprint=FAILURES[2], topic="shop.stock"),
    HeldFilter(tenant="t2"),
    HeldFilter(tenants=("t1", "t3")),
    HeldFilter(tenants={"t1", "t3"}, fingerprint=FAILURES[1], state="dead"),
    HeldFilter(tenants=("t2", "t3"), topic="shop.stock"),
    HeldFilter(tenants=("t1",), tenant="t1"),
    HeldFilter(tenants=("t1",), tenant="t2"),
    HeldFilter(tenants=()),
    HeldFilter(tenants=("nobody",)),
    HeldFilter(key="k3"),
    HeldFilter(key="k3", tenants=("t1",), state="dead"),
    HeldFilter(correlation="c1"),
    HeldFilter(correlation="c1", consumer="billing", tenants=("t1", "t2")),
    HeldFilter(event_id="e7"),
    HeldFilter(event_id="e7", tenants=()),
    HeldFilter(ids=(3, 4, 9), tenants=("t1", "t2")),
    HeldFilter(fingerprint="nothing"),
)


JOB, OTHER_JOB = "0190a000-0000-7000-8000-000000000001", "0190a000-0000-7000-8000-000000000002"


class BrowsingContract(StoreFixtures):
    """What `Browsing` promises."""

    async def test_pages_of_held_events_hold_each_that_fits_once(self, store: Store) -> None:
        everything = await _some_held(store)
        for wanted in FILTERS:
            fitting = [one.id for one in everything if _fits(one, wanted)]
            for newest in (True, False):

                async def page(after: int | None, wanted: HeldFilter = wanted, newest: bool = newest) -> Sequence[int]:
                    lines = await store.browsing.held(wanted, after=after, limit=4, newest=newest)
                    return [line.id for line in lines]

                assert await _all(page) == sorted(fitting, reverse=newest), wanted
            assert [one.id for one in await store.held.find(wanted)] == fitting, wanted

    async def test_a_line_tells_of_an_event_without_its_envelope(self, store: Store) -> None:
        given = replace(
            held(entry(1, lineage=3), "dead"),
            type="order.placed",
            attempts=4,
            next_at=5.5,
            first_at=1.5,
            reason="because",
            error="x" * 1000,
            fingerprint=FAILURES[1],
            correlation="c1",
        )
        await hold(store, given)
        (line,) = await store.browsing.held(HeldFilter())
        (found,) = await store.held.find(HeldFilter())
        assert (found.fingerprint, found.correlation) == (FAILURES[1], "c1")
        assert line.error == "x" * 300
        for name in ("id", "consumer", "state", "type", "attempts", "next_at", "first_at", "last_at", "reason", "fingerprint", "correlation"):  # fmt: skip
            assert getattr(line, name) == getattr(found, name), name
        for name in ("topic", "tenant", "key", "sequence", "lineage", "event_id"):
            assert getattr(line, name) == getattr(given.entry, name), name

    async def test_alike_failures_are_a_group(self, store: Store) -> None:
        everything = await _some_held(store)
        for wanted in FILTERS:
            fitting = [one for one in everything if _fits(one, wanted)]
            sizes = Counter((one.fingerprint, one.consumer, one.state) for one in fitting)
            groups = await store.browsing.held_groups(wanted)
            assert {(group.fingerprint, group.consumer, group.state): group.count for group in groups} == {
                kind: Bounded(size) for kind, size in sizes.items()
            }, wanted
            assert [group.count.number for group in groups] == sorted(sizes.values(), reverse=True), wanted
            for group in groups:
                members = [
                    one
                    for one in fitting
                    if (one.fingerprint, one.consumer, one.state) == (group.fingerprint, group.consumer, group.state)
                ]
                assert group.example == members[-1].id
                assert (group.type, group.error) == (members[-1].type, members[-1].error)
                assert group.first_at == members[0].first_at
                assert group.last_at == members[-1].first_at
        assert len(await store.browsing.held_groups(HeldFilter(), limit=2)) == 2

    async def test_an_event_that_fails_in_another_way_changes_its_group(self, store: Store) -> None:
        await hold(store, replace(held(entry(1), "retrying"), fingerprint=FAILURES[1]))
        (found,) = await store.held.find(HeldFilter())
        async with store.begin() as tx:
            assert await store.held.change(tx, replace(found, state="dead", fingerprint=FAILURES[2]))
        (group,) = await store.browsing.held_groups(HeldFilter())
        assert (group.fingerprint, group.state, group.count) == (FAILURES[2], "dead", Bounded(1))
        (found,) = await store.held.find(HeldFilter(fingerprint=FAILURES[2]))
        async with store.begin() as tx:
            assert await store.held.change(tx, replace(found, fingerprint=FAILURES[1])), "the state is the same"
        (group,) = await store.browsing.held_groups(HeldFilter())
        assert (group.fingerprint, group.count) == (FAILURES[1], Bounded(1))
        (found,) = await store.held.find(HeldFilter())
        async with store.begin() as tx:
            assert await store.held.remove(tx, found)
        assert await store.browsing.held_groups(HeldFilter()) == []

    async def test_a_fork_has_a_word_for_its_failure(self, store: Store) -> None:
        await hold(store, held(entry(2), "gap"))
        await hold(store, held(entry(2, event_id="fork"), "gap"))
        found = {line.event_id: line.fingerprint for line in await store.browsing.held(HeldFilter())}
        assert found == {entry(2).event_id: "", "fork": "fork"}

    async def test_what_waits_behind_an_event_is_counted(self, store: Store) -> None:
        await hold(store, held(entry(1), "dead"))
        for number in (2, 3, 4):
            await hold(store, held(entry(number), "blocked"))
        await hold(store, held(entry(1, key="other"), "dead"))
        await hold(store, held(entry(9, key="aside"), "quarantined"))
        await hold(store, held(entry(None), "dead"))
        lines = await store.browsing.held(HeldFilter(), newest=False)
        behind = await store.browsing.waiting_behind(lines)
        by_number = {(line.key, line.sequence): behind.get(line.id) for line in lines}
        assert by_number == {
            ("k", 1): Bounded(3),
            ("k", 2): Bounded(2),
            ("k", 3): Bounded(1),
            ("k", 4): Bounded(0),
            ("other", 1): Bounded(0),
            ("aside", 9): None,
            (None, None): None,
        }

    async def test_what_waits_behind_an_event_is_counted_up_to_a_bound(self, store: Store) -> None:
        async with store.begin() as tx:
            await store.held.hold(tx, held(entry(1), "dead"))
            for number in range(2, BEHIND + 3):
                await store.held.hold(tx, held(entry(number), "blocked"))
        lines = await store.browsing.held(HeldFilter(), newest=False, limit=2)
        behind = await store.browsing.waiting_behind(lines)
        assert [behind[line.id] for line in lines] == [Bounded(BEHIND, more=True), Bounded(BEHIND)]

    async def test_for_whom_events_are_held_is_told_of_the_oldest_of_each_state(self, store: Store) -> None:
        everything = await _some_held(store)
        for limit in (1_000, 3):
            asked: Sequence[HeldState] = ("dead", "retrying", "gap")
            told = await store.browsing.held_by_tenant(asked, limit=limit)
            looked = [
                one
                for state in asked
                for one in sorted((one for one in everything if one.state == state), key=lambda one: one.id)[:limit]
            ]
            assert looked, "there are some"
            assert {(one.state, one.tenant): one.number for one in told} == Counter(
                (one.state, one.entry.tenant) for one in looked
            )
            for one in told:
                assert one.first_at == min(
                    other.first_at for other in looked if (other.state, other.entry.tenant) == (one.state, one.tenant)
                )
        assert await store.browsing.held_by_tenant(()) == []

    async def test_who_said_the_newest_is_told_by_topic(self, store: Store) -> None:
        assert await store.browsing.said_by_tenant() == []
        async with store.begin() as tx:
            await store.outbox.append(tx, [outbox_row("k", tenant=name) for name in ("t1", "t2", "t1", "t3", "t1")])
        told = await store.browsing.said_by_tenant(limit=3)
        assert {(one.tenant, one.topic): one.number for one in told} == {("t1", TOPIC): 2, ("t3", TOPIC): 1}

    async def test_pages_of_sagas_hold_each_that_fits_once(self, store: Store) -> None:
        drawn = random.Random(5)
        statuses: Sequence[SagaStatus] = ("running", "compensating", "partial")
        async with store.begin() as tx:
            for number in range(40):
                given = SagaRow(
                    saga=drawn.choice(("booking", "stay")),
                    tenant=drawn.choice(("t1", "t2", "t3")),
                    id=f"s{number}",
                    status=drawn.choice(statuses),
                    state=b'{"secret":1}',
                    correlation=drawn.choice((None, "c1", "c2")),
                )
                assert await store.sagas.add(tx, given)
        everything = await store.sagas.find(SagaFilter())
        assert len(everything) == 40
        for wanted in (
            SagaFilter(),
            SagaFilter(saga="booking"),
            SagaFilter(status="partial"),
            SagaFilter(saga="stay", status="running"),
            SagaFilter(tenants=("t1", "t3")),
            SagaFilter(tenants=("t1", "t3"), saga="stay", status="running"),
            SagaFilter(tenants=()),
            SagaFilter(tenant="t2", status="running"),
            SagaFilter(tenant="t2", tenants=("t1",)),
            SagaFilter(correlation="c1"),
            SagaFilter(correlation="c1", tenants=("t2",), status="partial"),
            SagaFilter(id="s7"),
            SagaFilter(id="s7", tenants=()),
        ):
            fitting = [row for row in everything if _saga_fits(row, wanted)]
            for newest in (True, False):

                async def page(after: int | None, wanted: SagaFilter = wanted, newest: bool = newest) -> Sequence[int]:
                    rows = await store.browsing.sagas(wanted, after=after, limit=4, newest=newest)
                    assert all(row.state == b"{}" for row in rows)
                    return [row.number for row in rows]

                assert await _all(page) == sorted((row.number for row in fitting), reverse=newest), wanted
            assert [row.number for row in await store.sagas.find(wanted)] == [row.number for row in fitting], wanted
        (one,) = await store.browsing.sagas(SagaFilter(id="s7"))
        (same,) = await store.sagas.find(SagaFilter(id="s7"))
        assert one == replace(same, state=b"{}")

    async def test_pages_of_timers_are_soonest_first(self, store: Store) -> None:
        drawn = random.Random(6)
        async with store.begin() as tx:
            for number in range(30):
                tenant = drawn.choice(("t1", "t2", "t3"))
                due_at = 1e9 + drawn.randrange(5)
                await store.timers.set(tx, Timer(name=f"n{number}", due_at=due_at, row=outbox_row("k", tenant=tenant)))
        everything = await store.browsing.timers(limit=100)
        assert len(everything) == 30
        assert everything == sorted(everything, key=lambda line: (line.due_at, line.id))
        for tenants in (None, ("t1", "t3"), ()):
            found: list[object] = []
            after: tuple[float, int] | None = None
            while page := await store.browsing.timers(tenants, after=after, limit=4):
                found += page
                after = (page[-1].due_at, page[-1].id)
            assert found == [line for line in everything if tenants is None or line.tenant in tenants]

    async def test_pages_of_the_operators_log_are_newest_first(self, store: Store) -> None:
        drawn = random.Random(7)
        for number in range(30):
            async with store.begin() as tx:
                given = Action(
                    verb=drawn.choice(("held retry", "held skip", "outbox retry")),
                    by=drawn.choice(("ada", "bob")),
                    tenant=drawn.choice(("t1", "t2")),
                    key=drawn.choice(("k1", "")),
                    event_id=drawn.choice(("e1", "")),
                    target=str(number),
                    why=of_item("all", JOB if number % 4 else OTHER_JOB) if number % 2 else "[job none]!",
                )
                await store.actions.add(tx, given)
            if number % 3 == 0:
                await self.later(1)
        everything = await store.browsing.actions(ActionFilter(), limit=100)
        assert len(everything) == 30
        assert everything == await store.actions.find(ActionFilter())
        middle = everything[15].at
        cases: Sequence[tuple[ActionFilter, Callable[[Action], bool]]] = (
            (ActionFilter(), lambda one: True),
            (ActionFilter(verb="held"), lambda one: one.verb.startswith("held ")),
            (ActionFilter(verb="retry"), lambda one: one.verb.endswith(" retry")),
            (ActionFilter(by="ada", key="k1"), lambda one: (one.by, one.key) == ("ada", "k1")),
            (ActionFilter(event_id="e1"), lambda one: one.event_id == "e1"),
            (ActionFilter(tenants=("t2",), event_id="e1"), lambda one: (one.tenant, one.event_id) == ("t2", "e1")),
            (ActionFilter(tenants=()), lambda one: False),
            (ActionFilter(job=""), lambda one: not one.why.endswith("]")),
            (ActionFilter(job=JOB), lambda one: one.why == of_item("all", JOB)),
            (ActionFilter(since=middle), lambda one: one.at >= middle),
            (ActionFilter(until=middle), lambda one: one.at < middle),
        )
        for wanted, fits in cases:
            found: list[Action] = []
            after: tuple[float, str] | None = None
            while page := await store.browsing.actions(wanted, after=after, limit=4):
                found += page
                after = (page[-1].at, page[-1].id)
            assert found == [one for one in everything if fits(one)], wanted
            assert await store.actions.find(wanted) == found, wanted

    async def test_the_outbox_is_looked_through(self, store: Store) -> None:
        rows = [
            outbox_row("k1", event_id="e1", headers={"ce-correlationid": "c1"}),
            outbox_row("k2", event_id="e2", tenant="t2", body=b'{"correlation":"c1"}'),
            outbox_row("k1", event_id="e3", topic="shop.stock"),
            outbox_row(None, event_id="e4"),
        ]
        async with store.begin() as tx:
            await store.outbox.append(tx, rows)
        for wanted, ids in (
            (OutboxFilter(), ["e4", "e3", "e2", "e1"]),
            (OutboxFilter(event_id="e2"), ["e2"]),
            (OutboxFilter(key="k1"), ["e3", "e1"]),
            (OutboxFilter(key="k1", topic="shop.stock"), ["e3"]),
            (OutboxFilter(contains="c1"), ["e2", "e1"]),
            (OutboxFilter(contains="c1", tenants=("t1",)), ["e1"]),
            (OutboxFilter(tenants=()), []),
        ):
            found = await store.browsing.outbox(wanted)
            assert [one.event_id for one in found.rows] == ids, wanted
            assert found.after is None
        first = await store.browsing.outbox(OutboxFilter(), limit=3)
        assert [one.event_id for one in first.rows] == ["e4", "e3", "e2"]
        rest = await store.browsing.outbox(OutboxFilter(), after=first.after, limit=3)
        assert ([one.event_id for one in rest.rows], rest.after) == (["e1"], None)

    async def test_where_consumers_stand_with_a_key_and_an_event(self, store: Store) -> None:
        for consumer in (CONSUMER, "shipping"):
            await store.inbox.register(consumer, TOPIC, adopt=False)
        assert await claim(store, entry(1))
        await hold(store, held(entry(2), "dead"))
        alone = entry(None)
        assert await claim(store, alone)
        (head,) = await store.browsing.heads("t1", "k")
        assert (head.consumer, head.topic, head.sequence, head.event_id, head.held) == (
            CONSUMER, TOPIC, 1, entry(1).event_id, 1,
        )  # fmt: skip
        assert await store.browsing.heads("t2", "k") == []
        (applied,) = await store.browsing.applied("t1", alone.event_id)
        assert (applied.consumer, applied.topic, applied.result) == (CONSUMER, TOPIC, "applied")
        assert applied.received_at > 0
        assert await store.browsing.applied("t2", alone.event_id) == []


async def _all(page: Callable[[T | None], Awaitable[Sequence[T]]]) -> list[T]:
    """Everything, page by page."""
    found: list[T] = []
    while lines := await page(found[-1] if found else None):
        found += lines
    return found


async def _some_held(store: Store) -> Sequence[HeldEvent]:
    """Eighty held events, of every kind; the same ones at every run."""
    drawn = random.Random(4)
    async with store.begin() as tx:
        for number in range(80):
            one = replace(
                held(entry(None, tenant=drawn.choice(("t1", "t2", "t3")), event_id=f"e{number}"), drawn.choice(STATES)),
                consumer=drawn.choice(("billing", "shipping")),
                fingerprint=drawn.choice(FAILURES),
                correlation=drawn.choice((None, "c1", "c2")),
                type=f"type {number}",
                error=f"error {number}",
                first_at=1000.0 + number,
            )
            if number % 3 == 0:  # some of a key, each of one of its own
                keyed = replace(one.entry, key=f"k{number}", sequence=number + 1)
                one = replace(one, entry=keyed)
            if number % 4 == 0:
                one = replace(one, entry=replace(one.entry, topic="shop.stock"))
            assert await store.held.hold(tx, one)
    found = await store.held.find(HeldFilter())
    assert len(found) == 80
    assert {one.state for one in found} & BLOCKING
    return found


def _fits(one: HeldEvent, wanted: HeldFilter) -> bool:
    entry = one.entry
    told = (
        (one.consumer, wanted.consumer),
        (one.state, wanted.state),
        (one.fingerprint, wanted.fingerprint),
        (one.correlation, wanted.correlation),
        (entry.tenant, wanted.tenant),
        (entry.topic, wanted.topic),
        (entry.key, wanted.key),
        (entry.event_id, wanted.event_id),
    )
    among = ((entry.tenant, wanted.tenants), (one.id, wanted.ids))
    return all(asked in (None, given) for given, asked in told) and all(
        asked is None or given in asked for given, asked in among
    )


def _saga_fits(row: SagaRow, wanted: SagaFilter) -> bool:
    told = ((row.saga, wanted.saga), (row.status, wanted.status), (row.tenant, wanted.tenant), (row.id, wanted.id))
    return (
        all(asked in (None, given) for given, asked in told)
        and wanted.correlation in (None, row.correlation)
        and (wanted.tenants is None or row.tenant in wanted.tenants)
    )
