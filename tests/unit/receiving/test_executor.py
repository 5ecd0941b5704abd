"""The executor: all steps together, for one event, for several, and for one that was held."""

from __future__ import annotations

import msgspec
import pytest

from posthouse import Event, Policy, RetryNow, Tx
from posthouse.broker import Delivery, Frame
from posthouse.errors import FrameRefused, StoreCollision, StoreUnavailable
from posthouse.receiving import Executor, Handler, HeldEvents
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import Seam
from tests.unit.receiving.conftest import Bench, MeterRead, NoteTaken, handled_by

runs: list[int] = []
troubles: list[Exception] = []
broken: set[int] = set()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.receiving.collisions.LAST_PAUSE", 0.0)
    runs.clear()
    troubles.clear()
    broken.clear()


async def enter(event: Event[MeterRead], tx: Tx) -> NoteTaken:
    runs.append(event.data.value)
    await tx.execute("CREATE TABLE IF NOT EXISTS reading (value INTEGER)")
    await tx.execute("INSERT INTO reading VALUES (?)", (event.data.value,))
    if troubles:
        raise troubles.pop()
    if event.data.value in broken:
        raise ValueError("torn page")
    return NoteTaken(text=str(event.data.value))


async def enter_all(events: list[Event[MeterRead]], tx: Tx) -> None:
    for event in events:
        await enter(event, tx)


def grouped(function: object) -> dict[str, Handler]:
    assert callable(function)
    return handled_by(function, Policy(grouped=True))


async def written(bench: Bench) -> list[object]:
    async with bench.store.begin() as tx:
        found = await tx.execute("SELECT name FROM sqlite_master WHERE name = 'reading'")
        return [value for (value,) in await tx.execute("SELECT value FROM reading")] if found else []


async def run_held(bench: Bench, executor: Executor) -> None:
    for due in await bench.store.held.claim_due("books", 10, 60.0):
        await executor.retry(due)


async def test_one_event_is_claimed_run_and_published_once(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter))
    events = bench.readings(executor, [1])
    await executor.execute(events)
    await executor.execute(events)
    assert await written(bench) == [1]
    assert len(await bench.outbox()) == 1


@pytest.mark.parametrize("function", [enter, enter_all])
async def test_several_events_share_one_transaction(bench: Bench, function: object) -> None:
    executor = bench.executor(grouped(function))
    await executor.execute([*bench.readings(executor, [1, 2]), *bench.readings(executor, [1], meter="m2")])
    assert await written(bench) == [1, 2, 1]
    assert [figure.count for figure in executor.seam.timing.figures() if figure.crossing == "transaction"] == [1]


@pytest.mark.parametrize("function", [enter, enter_all])
async def test_a_group_in_which_one_fails_is_redone_one_by_one(bench: Bench, function: object) -> None:
    broken.add(2)
    executor = bench.executor(grouped(function))
    await executor.execute([*bench.readings(executor, [1, 2, 3]), *bench.readings(executor, [1], meter="m2")])
    assert await written(bench) == [1, 1]
    assert await bench.states() == [(2, "retrying", 1), (3, "blocked", 0)]


async def test_a_collision_is_run_again_and_costs_no_attempt(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter, Policy(max_attempts=1)))
    troubles.extend([StoreCollision("deadlock"), StoreCollision("deadlock")])
    await executor.execute(bench.readings(executor, [1]))
    assert runs == [1, 1, 1]
    assert await written(bench) == [1]
    assert await bench.held() == []


async def test_a_group_that_collides_again_and_again_is_redone_one_by_one(bench: Bench) -> None:
    executor = bench.executor(grouped(enter))
    troubles.extend([StoreCollision("deadlock")] * 5)
    await executor.execute(bench.readings(executor, [1, 2]))
    assert await written(bench) == [1, 2]
    assert await bench.held() == []


@pytest.mark.parametrize("numbers", [[1], [1, 2]])
async def test_the_databases_trouble_is_nobodys_attempt(bench: Bench, numbers: list[int]) -> None:
    executor = bench.executor(grouped(enter))
    troubles.append(StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        await executor.execute(bench.readings(executor, numbers))
    assert await written(bench) == []
    assert await bench.held() == []


async def test_an_event_that_asks_for_it_is_run_again_at_once(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter))
    troubles.extend([RetryNow("busy"), RetryNow("busy")])
    await executor.execute(bench.readings(executor, [1]))
    assert runs == [1, 1, 1]
    assert await bench.held() == []


async def test_an_event_that_fails_is_held_with_what_it_wrote_rolled_back(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter))
    broken.add(1)
    await executor.execute(bench.readings(executor, [1]))
    assert await written(bench) == []
    assert await bench.states() == [(1, "retrying", 1)]
    assert executor.due.is_set()


async def test_a_held_event_goes_the_same_way_and_lets_the_next_one_follow(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter))
    broken.add(1)
    await executor.execute(bench.readings(executor, [1]))
    await executor.execute(bench.readings(executor, [2]))
    bench.clock.advance(10)
    await run_held(bench, executor)
    assert await bench.states() == [(1, "retrying", 2), (2, "blocked", 0)]
    broken.clear()
    executor.due.clear()
    bench.clock.advance(20)
    await run_held(bench, executor)
    assert await written(bench) == [1]
    assert executor.due.is_set()
    await run_held(bench, executor)
    assert await written(bench) == [1, 2]
    assert await bench.held() == []


async def test_a_held_event_whose_runs_were_cut_short_is_dead_without_another(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter, Policy(max_attempts=1, first_delay=0.0)))
    async with bench.store.begin() as tx:
        [one] = bench.readings(executor, [1])
        await bench.store.held.hold(tx, one.to_held("books", "retrying", "may have run before a crash", attempts=1))
    await run_held(bench, executor)
    assert runs == []
    assert await bench.states() == [(1, "dead", 2)]


async def test_what_the_seam_refuses_is_quarantined_with_its_reason_and_its_key_goes_on(bench: Bench) -> None:
    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        if b'"value":1' in event.data:
            raise FrameRefused("its key is gone")
        return event

    executor = bench.executor(grouped(enter), seam=Seam(decrypt=decrypt))
    await executor.execute(bench.readings(executor, [1, 2]))
    assert await written(bench) == [2]
    [held] = await bench.held()
    assert (held.state, held.reason) == ("quarantined", "its key is gone")


@pytest.mark.parametrize("good_copy", ["before", "after"])
async def test_a_frame_that_was_refused_and_is_accepted_later_is_run_once_in_its_place(
    bench: Bench, good_copy: str
) -> None:
    strangers = True

    def verify(frame: Frame) -> None:
        if strangers and "signature" not in frame.headers:
            raise FrameRefused("nobody signed it")

    executor = bench.executor(handled_by(enter), seam=Seam(verify=verify))
    one, two = (bench.delivery(MeterRead(meter="m1", value=number), number) for number in (1, 2))
    for delivery in (two, one):
        await executor.execute([executor.decoder.from_delivery(delivery)])
    assert await bench.states() == [(None, "quarantined", 0)] * 2
    strangers = False
    signed = Delivery(
        frame=msgspec.structs.replace(one.frame, headers={**one.frame.headers, "signature": "s"}),
        position=0,
        stored_at=0.0,
    )
    if good_copy == "before":
        await executor.execute([executor.decoder.from_delivery(signed)])
    for held in await bench.held():
        await HeldEvents(bench.store).retry(held.id)
    for _ in range(4):
        await run_held(bench, executor)
    if good_copy == "after":
        await executor.execute([executor.decoder.from_delivery(signed)])
    assert await written(bench) == [1, 2]
    assert await bench.held() == []


async def test_whoever_is_asked_outside_gets_the_data_that_its_producer_meant(bench: Bench) -> None:
    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        return event.with_data(event.data.replace(b'"value":1', b'"value":7'))

    async def ask(event: Event[MeterRead]) -> int:
        return event.data.value

    async def answered(event: Event[MeterRead], tx: Tx, answer: int) -> None:
        runs.extend([event.data.value, answer])

    executor = bench.executor(handled_by(answered, calling=ask), seam=Seam(decrypt=decrypt))
    await executor.execute(bench.readings(executor, [1]))
    assert runs == [7, 7]


async def test_nobody_outside_is_asked_about_an_event_whose_turn_it_is_not(bench: Bench) -> None:
    asked: list[int] = []

    async def ask(event: Event[MeterRead]) -> str:
        asked.append(event.data.value)
        return "yes"

    async def answered(event: Event[MeterRead], tx: Tx, answer: str) -> None:
        runs.append(event.data.value)

    executor = bench.executor(handled_by(answered, calling=ask))
    one, two = bench.readings(executor, [1, 2])
    await executor.execute([two])
    await executor.execute([one])
    await executor.execute([one])
    assert (asked, runs) == ([1], [1])
    assert await bench.states() == [(2, "retrying", 0)]
    await run_held(bench, executor)
    assert (asked, runs) == ([1, 2], [1, 2])


async def test_crossings_are_timed_with_their_outcomes(bench: Bench) -> None:
    executor = bench.executor(handled_by(enter))
    broken.add(2)
    for inbound in bench.readings(executor, [1, 2]):
        await executor.execute([inbound])
    noted = {(f.crossing, f.outcome): f.count for f in executor.seam.timing.figures() if f.crossing != "outward"}
    assert noted == {
        ("handler", "ok"): 1,
        ("handler", "ValueError"): 1,
        ("inward", "ok"): 2,
        ("transaction", "ok"): 1,
        ("transaction", "ValueError"): 1,
    }


def test_an_event_without_a_handler_follows_the_default_policy(bench: Bench) -> None:
    executor = bench.executor({})
    [inbound] = bench.readings(executor, [1])
    assert isinstance(inbound, InboundEvent)
    assert inbound.policy == Policy()


async def test_an_event_of_a_newer_lineage_that_fails_is_held_though_older_ones_waited(bench: Bench) -> None:
    """It is next only once those of the lost lineage were set aside, also when its failure is written down."""
    executor = bench.executor(handled_by(enter))
    old, new = bench.readings(executor, [1, 1])
    for number in (1, 2):
        entry = msgspec.structs.replace(old.entry, sequence=number, event_id=f"e{number}")
        await executor.execute([msgspec.structs.replace(old, entry=entry)])
        broken.add(1)
    assert [state for _, state, _ in await bench.states()] == ["retrying"]
    await executor.execute(
        [msgspec.structs.replace(new, entry=msgspec.structs.replace(new.entry, sequence=2, lineage=2))]
    )
    assert sorted((held.entry.lineage, held.state) for held in await bench.held()) == [
        (1, "quarantined"),
        (2, "retrying"),
    ]
    broken.clear()
    await run_held(bench, executor)
    assert len(await written(bench)) == 2
