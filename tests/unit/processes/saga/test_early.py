"""Events that come too early wait, in order, visibly, for a time; and block nothing else."""

from __future__ import annotations

import itertools
import time

import msgspec
import pytest
from msgspec.structs import replace

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError, Reject
from posthouse.events import timestamp
from posthouse.processes import Saga, Turn, join, on, starts, step, undo
from posthouse.processes.saga.waiting import MOST_WAITING, obstacle, woken
from posthouse.receiving.held import HeldEvents
from posthouse.store.sagas import Done, SagaRow, Waiting
from posthouse.testing import Harness, assert_survives_crashes, given
from posthouse.testing.histories import assert_replays, dump, histories, load

mill = Service("mill", namespace="town")
field = Service("field", namespace="town")


@field.event("corn.cut.v1", key="field_id")
class CornCut(Payload):
    bread_id: str
    field_id: str = "f"


@field.event("corn.dried.v1", key="field_id")
class CornDried(Payload):
    bread_id: str
    field_id: str = "f"
    fails: bool = False


@field.event("corn.blessed.v1", key="field_id")
class CornBlessed(Payload):
    bread_id: str
    field_id: str = "f"


@field.event("rain.fallen.v1", key="bread_id")
class RainFallen(Payload):
    bread_id: str


@field.event("water.came.v1", key="bread_id")
class WaterCame(Payload):
    bread_id: str


@field.event("hail.fallen.v1", key="bread_id")
class HailFallen(Payload):
    bread_id: str


@field.event("bread.wanted.v1", key="bread_id")
class BreadWanted(Payload):
    bread_id: str


class Weather:
    fails = 0


@mill.saga("bread", correlate="bread_id", early_within=600.0, policy=Policy(max_attempts=2, first_delay=5.0))
class BreadSaga(Saga):
    bread_id: str
    seen: list[str] = msgspec.field(default_factory=list)

    @starts(BreadWanted)
    def want(self, event: Event[BreadWanted], turn: Turn) -> None: ...

    @step(CornCut)
    def cut(self, event: Event[CornCut], turn: Turn) -> None:
        self.seen.append("cut")

    @step(CornDried, after=cut)
    def dried(self, event: Event[CornDried], turn: Turn) -> None:
        if Weather.fails:
            Weather.fails -= 1
            raise RuntimeError("wet")
        self.seen.append("dried")

    @undo(dried)
    def wet(self, event: Event[CornDried], turn: Turn) -> None:
        self.seen.append("wet")

    @step(WaterCame, after=(want, dried), early_within=60.0)
    def water(self, event: Event[WaterCame], turn: Turn) -> None:
        self.seen.append("water")

    @join(dried, water)
    def dough(self, turn: Turn) -> None:
        self.seen.append("dough")
        turn.complete()

    @on(CornBlessed)
    def blessed(self, event: Event[CornBlessed], turn: Turn) -> None:
        self.seen.append("blessed")

    @on(RainFallen, early="ignore")
    def rain(self, event: Event[RainFallen], turn: Turn) -> None: ...

    @on(HailFallen)
    def hail(self, event: Event[HailFallen], turn: Turn) -> None:
        turn.compensate("hail")


WANTED, CUT, DRIED, WATER = (cls(bread_id="b") for cls in (BreadWanted, CornCut, CornDried, WaterCame))
BLESSED, RAIN, HAIL = (cls(bread_id="b") for cls in (CornBlessed, RainFallen, HailFallen))
EVENTS = (WANTED, CUT, DRIED, WATER)


@pytest.fixture(autouse=True)
def _weather() -> None:
    Weather.fails = 0


async def bread(id: str = "b") -> SagaRow:
    return (await app_of(mill).sagas.show("bread", id, tenant="t1")).row


async def seen() -> list[str]:
    saga = mill.declared.saga_types["bread"].decode((await bread()).state, "b")
    assert isinstance(saga, BreadSaga)
    return saga.seen


@pytest.mark.parametrize("order", list(itertools.permutations(EVENTS)))
async def test_in_every_order_the_steps_are_done_in_theirs(order: tuple[object, ...]) -> None:
    case = await given(mill, BreadSaga, *order)
    case.then(status="completed", state={"seen": ["cut", "dried", "water", "dough"]})
    assert case.waiting == []
    assert case.dead_letters == []


async def test_in_a_real_store_too_and_nothing_is_held_or_left_behind() -> None:
    async with Harness(mill, field) as h:
        for event in reversed(EVENTS):
            await h.publish(event)
            await h.settled()
            assert await h.held(mill) == []
        await h.settled()
        assert await seen() == ["cut", "dried", "water", "dough"]
        row = await bread()
        assert (row.status, row.waiting, row.deadlines) == ("completed", (), {})
        figures = await h.settled()
        assert figures.timers["mill"] == 0
        async with mill.transaction("t1") as tx:
            assert (await tx.execute("SELECT count(*) FROM posthouse_saga_waiting")).scalar() == 0
        turns = await app_of(mill).store.sagas.history("bread", "t1", "b")
    assert [(turn.status, turn.waits_for) for turn in turns[:4]] == [
        ("awaited", "its start"),
        ("awaited", "its start"),
        ("awaited", "its start"),
        ("running", ""),
    ]


async def test_what_waits_is_shown_and_blocks_neither_its_key_nor_others() -> None:
    async with Harness(mill, field) as h:
        await h.publish(CornDried(bread_id="never"))
        await h.publish(WANTED)
        await h.publish(CUT)
        await h.publish(WATER)
        await h.settled()
        assert await seen() == ["cut"], "the key of the field goes on"
        row = await bread()
        assert [(one.type, one.method) for one in row.waiting] == [("town.field.water.came.v1", "water")]
        assert (await bread("never")).status == "awaited"
        assert (await app_of(mill).sagas.counts())["bread", "awaited"] == 1
        await h.publish(DRIED)
        await h.settled()
        assert (await bread()).status == "completed"


async def test_an_event_does_not_overtake_one_of_its_key_that_waits() -> None:
    case = await given(mill, BreadSaga, WANTED, DRIED, BLESSED)
    assert case.waiting == ["town.field.corn.dried.v1", "town.field.corn.blessed.v1"]
    await case.when(CUT)
    case.then(state={"seen": ["cut", "dried", "blessed"]})


async def test_what_may_never_have_a_saga_is_passed_over() -> None:
    async with Harness(mill, field) as h:
        await h.publish(RAIN)
        await h.settled()
        assert [row async for row in app_of(mill).sagas.find()] == []


async def test_what_waits_too_long_is_a_dead_letter_that_can_be_run_again() -> None:
    async with Harness(mill, field) as h:
        await h.publish(DRIED)
        await h.publish(CUT)
        await h.settled()
        await h.advance(599.0)
        assert await h.held(mill) == []
        await h.advance(1.0)
        dead = await h.held(mill)
        assert [(held.state, held.type, held.reason) for held in dead] == [
            ("dead", "town.field.corn.dried.v1", "bread b: it waited 600 s for its start"),
            ("dead", "town.field.corn.cut.v1", "bread b: it waited 600 s for its start"),
        ]
        assert (await bread()).status == "awaited", "what comes now waits behind the dead letters"
        await h.publish(WANTED)
        await h.settled()
        desk = HeldEvents(app_of(mill).store)
        await desk.retry(dead[0].id)
        await h.settled()
        waiting = [(one.method, one.woken) for one in (await bread()).waiting]
        assert waiting == [("dried", False), ("cut", True)], "it waits again, for the other"
        await desk.retry(dead[1].id)
        await h.settled()
        await h.settled()
        assert await seen() == ["cut", "dried"]
        assert await h.held(mill) == []


async def test_a_mark_may_say_how_long_and_the_reason_names_the_step() -> None:
    case = await given(mill, BreadSaga, WANTED, WATER)
    (await case.advance(59)).then(status="running")
    assert case.dead_letters == []
    await case.advance(1)
    assert case.dead_letters == ["bread b: it waited 60 s for dried"]
    case.then(status="running", deadlines={})
    assert case.waiting == []
    await case.advance(600)
    assert case.dead_letters == ["bread b: it waited 60 s for dried"], "once"


async def test_when_the_saga_compensates_what_waits_is_late() -> None:
    case = await given(mill, BreadSaga, WANTED, DRIED, WATER)
    (await case.when(HAIL)).then(status="compensated", state={"seen": ["wet"]}, done=[])
    assert case.waiting == []
    assert [turn.late for turn in case.history[-2:]] == [True, True]


async def test_a_waiting_event_that_fails_is_tried_again_and_then_a_dead_letter_behind_which_its_key_waits() -> None:
    Weather.fails = 2
    async with Harness(mill, field) as h:
        for event in (WANTED, DRIED, BLESSED, CUT):
            await h.publish(event)
        await h.settled()
        (held,) = await h.held(mill)
        assert (held.state, held.type, held.attempts) == ("retrying", "town.field.corn.dried.v1", 1)
        assert [(one.method, one.woken) for one in (await bread()).waiting] == [("dried", True), ("blessed", False)]
        await h.advance(6.0)
        (held,) = await h.held(mill)
        assert (held.state, held.error) == ("dead", "RuntimeError: wet")
        await HeldEvents(app_of(mill).store).retry(held.id)
        await h.settled()
        await h.settled()
        assert await seen() == ["cut", "dried", "blessed"]
        assert await h.held(mill) == []


async def test_nobody_awaits_a_saga_any_more_when_its_dead_letters_are_given_up() -> None:
    async with Harness(mill, field) as h:
        await h.publish(DRIED)
        await h.publish(CUT)
        await h.advance(600.0)
        for held in await h.held(mill):
            await HeldEvents(app_of(mill).store).skip(held.id)
        await h.settled()
        await h.advance(1.0)
        assert [row async for row in app_of(mill).sagas.find()] == []


async def test_what_comes_behind_a_dead_letter_of_its_key_is_taken_after_it() -> None:
    async with Harness(mill, field) as h:
        await h.publish(CUT)
        await h.advance(600.0)
        (dead,) = await h.held(mill)
        await h.publish(BLESSED)
        await h.publish(WANTED)
        await h.advance(6_000.0)
        assert await seen() == [], "it waits as long as the dead letter stands"
        assert [held.state for held in await h.held(mill)] == ["dead"]
        await HeldEvents(app_of(mill).store).retry(dead.id)
        await h.settled()
        await h.settled()
        assert await seen() == ["cut", "blessed"]


async def test_those_behind_one_that_an_operator_gave_up_go_on_at_once() -> None:
    Weather.fails = 9
    async with Harness(mill, field) as h:
        for event in (WANTED, DRIED):
            await h.publish(event)
        await h.settled()
        await h.advance(10.0)
        await h.publish(BLESSED)
        await h.publish(CUT)
        await h.settled()
        await h.advance(6.0)
        (held,) = await h.held(mill)
        await HeldEvents(app_of(mill).store).skip(held.id)
        await h.settled()
        await h.advance(1.0)
        assert await seen() == ["cut", "blessed"]
        row = await bread()
        assert (row.waiting, row.deadlines) == ((), {})


class Hurried(Saga):
    bread_id: str
    seen: list[str] = msgspec.field(default_factory=list)

    @starts(BreadWanted)
    def want(self, event: Event[BreadWanted], turn: Turn) -> None: ...

    @on(CornDried)
    def dried(self, event: Event[CornDried], turn: Turn) -> None:
        if event.data.fails:
            raise Reject("wet")
        self.seen.append("dried")


async def test_where_dead_letters_are_skipped_those_behind_them_run_whether_it_failed_or_waited_too_long() -> None:
    hurried = Service("hurried", namespace="town")
    hurried.saga("bread", correlate="bread_id", early_within=60.0, policy=Policy(on_dead="skip"))(Hurried)
    async with Harness(hurried, field) as h:
        await h.publish(CornDried(bread_id="b", fails=True))
        await h.publish(DRIED)
        await h.publish(WANTED)
        await h.advance(1.0)
        row = (await app_of(hurried).sagas.show("bread", "b", tenant="t1")).row
        assert (b'"seen":["dried"]' in row.state, row.waiting) == (True, ())
        assert [held.state for held in await h.held(hurried)] == ["skipped"]
        await h.publish(CornDried(bread_id="never"))
        await h.advance(60.0)
        assert [held.state for held in await h.held(hurried)] == ["skipped", "skipped"]
        assert [row.id async for row in app_of(hurried).sagas.find()] == ["b"]


async def test_nobody_can_tell_under_which_name_an_early_event_will_be_held() -> None:
    """Or an event of that name, which a stranger sends, would pass for it in the inbox."""
    names = set[str]()
    for _ in range(2):
        case = await given(mill, BreadSaga, WANTED)
        await case._bench.take(said_by("/north", DRIED))
        names |= {one.held_as for one in case.row.waiting}
    assert len(names) == 2


async def test_one_whose_turn_has_come_is_no_dead_letter_though_nobody_took_it_for_long() -> None:
    case = await given(mill, BreadSaga, WANTED, DRIED)
    case._bench.wakes = False
    await case.when(CUT)
    await case.advance(600)
    assert case.dead_letters == []
    assert case.waiting == ["town.field.corn.dried.v1"]
    case._bench.wakes = True
    (await case.when(BLESSED)).then(state={"seen": ["cut", "dried", "blessed"]})


async def early_bread(h: Harness) -> None:
    for event in (DRIED, WANTED, CUT, WATER):
        await h.publish(event)
        await h.settled()


async def test_wherever_the_power_is_cut_early_events_are_taken_once_and_in_order() -> None:
    crashes = await assert_survives_crashes(early_bread, mill, field)
    assert crashes.runs > 10


async def test_the_history_of_a_saga_that_events_awaited_can_be_replayed() -> None:
    async with Harness(mill, field) as h:
        await early_bread(h)
        await h.settled()
        assert (await bread()).status == "completed"
        stored = dump([view async for view in histories(mill)])
    await assert_replays(mill, load(stored))


def test_a_time_to_wait_is_above_0() -> None:
    class Hasty(Saga):
        bread_id: str

        @starts
        def want(self, turn: Turn) -> None: ...

        @step(CornCut, early_within=0)
        def cut(self, event: Event[CornCut], turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        Service("hasty").saga("bread", correlate="bread_id", early_within=-1)(Hasty)
    assert list(caught.value.problems) == [
        "Hasty: cut: early_within must be above 0 seconds, not 0",
        "Hasty: early_within must be above 0 seconds, not -1",
    ]


def said_by(source: str, data: Payload, id: str = "7") -> Event[object]:
    """As a producer that counts its ids for itself says it."""
    event_type = event_type_of(type(data))
    return Event(id=id, type=event_type.name, source=source, data=data, time=timestamp(1.0), tenant="t1", key="f")


async def test_events_of_two_sources_that_have_one_id_wait_beside_each_other() -> None:
    case = await given(mill, BreadSaga, WANTED)
    for event in (said_by("/north", DRIED), said_by("/south", BLESSED), said_by("/north", DRIED)):
        await case._bench.take(event)
    assert case.waiting == ["town.field.corn.dried.v1", "town.field.corn.blessed.v1"]
    (await case.when(CUT)).then(state={"seen": ["cut", "dried", "blessed"]})


async def test_a_late_event_was_not_taken_before_because_one_of_another_source_had_its_id() -> None:
    case = await given(mill, BreadSaga, WANTED, CUT)
    await case._bench.take(said_by("/south", HAIL))
    case.then(status="compensated")
    await case._bench.take(said_by("/north", DRIED))
    case.then(status="compensated", state={"seen": ["cut", "wet"]})
    await case._bench.take(said_by("/north", DRIED))
    case.then(status="compensated", state={"seen": ["cut", "wet"]})


async def test_thousands_may_wait_behind_each_other_for_one_that_comes_last() -> None:
    of = mill.declared.saga_types["bread"]
    line = tuple(
        Waiting(event_id=str(n), type="t", method="dried", key="f", since=0.0, until=1.0) for n in range(MOST_WAITING)
    )
    row = SagaRow(saga="bread", tenant="t1", id="b", waiting=line)
    begun = time.process_time()
    assert woken(of, row) is row
    assert [one.woken for one in woken(of, replace(row, done=(Done("cut", 1),))).waiting] == [
        True,
        *[False] * (MOST_WAITING - 1),
    ]
    assert time.process_time() - begun < 2.0, "it costs so much per event, not per pair of them"
    cut = Waiting(event_id="cut", type="t", method="cut", key="f", since=0.0, until=1.0)
    assert obstacle(of, row, cut) == "", "all of them wait for it"
