"""Whoever decides, and whenever: nothing that was done is left standing or undone twice, and no saga stands still in silence."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.errors import DeskError
from posthouse.processes import Saga, Turn, late, on, starts, step, undo
from posthouse.processes.saga.transition import UNDO_DEADLINES, takes_in_time
from posthouse.store.sagas import Done
from posthouse.testing import Harness, given
from posthouse.testing.histories import assert_replays
from posthouse.testing.sagas import SagaCase
from tests.kit.long import LONG

court = Service("court", namespace="town")


@court.event("deposit.taken.v1", key="id")
class Deposit(Payload):
    id: str
    n: int


@court.event("fee.paid.v1", key="id")
class Fee(Payload):
    id: str
    n: int


@court.event("fee.returned.v1", key="id")
class Returned(Payload):
    id: str
    n: int


@court.event("return.refused.v1", key="id")
class Refused(Payload):
    id: str
    n: int


@court.event("word.spoken.v1", key="id")
class Word(Payload):
    id: str
    word: str


@court.event("money.asked.v1", key="id")
class Asked(Payload):
    id: str
    n: int


def _decide(word: str, turn: Turn) -> None:
    match word:
        case "complete":
            turn.complete()
        case "compensate":
            turn.compensate("so it was decided")
        case "partial":
            turn.partial("somebody must look at it")


@court.saga("trial", correlate="id")
class Trial(Saga):
    id: str

    @starts(Deposit)
    def opened(self, event: Event[Deposit], turn: Turn) -> None: ...

    @undo(opened)
    def hand_back(self, event: Event[Deposit], turn: Turn) -> None:
        turn.publish(Asked(id=self.id, n=event.data.n))

    @step(Fee)
    def paid(self, event: Event[Fee], turn: Turn) -> None: ...

    @undo(paid, until=Returned, unless=Refused, same="n", within=60.0)
    def give_back(self, event: Event[Fee], turn: Turn) -> None:
        turn.publish(Asked(id=self.id, n=event.data.n))

    @on(Word)
    def heard(self, event: Event[Word], turn: Turn) -> None:
        _decide(event.data.word, turn)

    @late(Word)
    def heard_late(self, event: Event[Word], turn: Turn) -> None:
        _decide(event.data.word, turn)


class Play:
    """One run, with what the world knows about it."""

    def __init__(self, case: SagaCase[Trial]) -> None:
        self.case = case
        self.numbers = itertools.count(1)
        self.asked: Counter[int] = Counter()
        self.allowed: Counter[int] = Counter()
        self.by_hand: set[int] = set()
        self.refused: set[int] = set()
        self.came_late: set[int] = set()
        self.came: set[int] = set()

    async def move(self, move: str) -> None:
        row, at = self.case.row, self.at
        try:
            match move:
                case "deposit" | "fee":
                    n = next(self.numbers)
                    self.came.add(n)
                    self.came_late |= set() if takes_in_time(row) else {n}
                    await self.case.when((Deposit if move == "deposit" else Fee)(id="t", n=n))
                case "complete" | "compensate" | "partial":
                    await self.case.when(Word(id="t", word=move))
                case "returned" | "refused" if at is not None:
                    self.refused |= {at} if move == "refused" and self.waits else set()
                    self.allowed[at] += move == "refused"
                    await self.case.when((Returned if move == "returned" else Refused)(id="t", n=at))
                case "returned again" if self.asked:
                    await self.case.when(Returned(id="t", n=min(self.asked)))
                case "time":
                    await self.case.advance(61)
                case "retry":
                    if at is not None:
                        self.allowed[at] += 1
                    await self.case.retry()
                case "resume":
                    by_hand = {at} if at is not None and row.status.startswith("compensat") else set()
                    await self.case.resume()
                    self.by_hand |= by_hand
                case "cancel":
                    await self.case.cancel("no more")
                case _:
                    return
        except DeskError:
            return
        self.asked.update(said.n for said in self.case.published if isinstance(said, Asked))
        self.look()

    @property
    def waits(self) -> bool:
        return self.case.row.undoing is not None and self.case.row.undoing.waiting

    @property
    def at(self) -> int | None:
        return None if self.case.row.undoing is None else self._number(self.case.row.undoing.of)

    @property
    def done(self) -> set[int]:
        return {self._number(done) for done in self.case.row.done}

    def _number(self, done: Done) -> int:
        turn = self.case.history[done.turn - 1]
        return msgspec.json.decode(bytes(turn.input.data), type=dict[str, str | int])["n"]  # type: ignore[return-value]

    def look(self) -> None:
        row = self.case.row
        if row.status == "compensating":
            assert set(row.deadlines) & set(UNDO_DEADLINES), "it stands still"
        if row.status in ("partial", "compensation_failed"):
            assert row.tasks, "it rests, and says so to nobody"
        twice = [n for n, times in self.asked.items() if times > 1 + self.allowed[n]]
        assert not twice, f"asked for again: {twice}"

    async def end(self, way: str) -> None:
        """The world answers, and the operator does what is to be done."""
        for _ in range(40):
            match self.case.row.status:
                case "compensating":
                    await self.move("returned")
                case "compensation_failed":
                    await self.move("retry")
                case "partial" | "running":
                    await self.move(way if self.case.row.status == "partial" else "cancel")
                case _:
                    break
        row = self.case.row
        assert row.ended
        settled = {n for n in self.came if self.asked[n]} | self.by_hand
        assert not self.came_late - settled, f"stands for ever: {self.came_late - settled}"
        if row.status != "completed":
            assert not self.came - settled, f"stands for ever: {self.came - settled}"
        assert not self.done & settled - self.refused, "undone, and taken for done"
        assert not self.came - settled - self.done, "forgotten"


MOVES = (
    *("deposit", "fee", "complete", "compensate", "partial", "returned", "refused", "returned again", "time"),
    *("retry", "resume", "cancel"),
)


KNOWN = [
    ("compensate", "fee", "partial", "returned", "resume"),
    ("compensate", "deposit", "partial", "deposit", "resume"),
]
"""Those that were broken once."""


def runs(first: str) -> Iterator[tuple[str, ...]]:
    """Four moves, and what an operator does in the end about a saga that rests."""
    every = list(itertools.product((first,), MOVES, MOVES, MOVES, ("cancel", "resume")))
    return iter(every if LONG else random.Random(15).sample(every, 25))


@pytest.mark.parametrize("first", MOVES)
async def test_no_decision_leaves_a_step_undone_or_undoes_it_twice_or_stands_still(first: str) -> None:
    for *moves, way in [*(run for run in KNOWN if run[0] == first), *runs(first)]:
        play = Play(await given(court, Trial))
        play.came.add(0)
        await play.case.when(Deposit(id="t", n=0))
        try:
            for move in ("fee", *moves):
                await play.move(move)
            await play.end(way)
        except AssertionError as broken:
            raise AssertionError(f"{moves}, then {way}: {broken}") from broken


async def test_a_fact_about_another_ends_nothing_and_is_noted() -> None:
    play = Play(await given(court, Trial))
    await play.case.when(Deposit(id="t", n=0))
    for move in ("fee", "fee", "compensate", "retry", "returned"):
        await play.move(move)
    assert (play.case.row.status, play.at) == ("compensating", 1)
    await play.case.when(Returned(id="t", n=2))
    assert (play.case.row.status, play.at) == ("compensating", 1)
    assert play.case.history[-1].note == "it is about another: n is not that of the paid which give_back undoes now"
    (await play.case.when(Refused(id="t", n=2))).then(status="compensating")
    (await play.case.when(Refused(id="t", n=1))).then(status="compensation_failed")


async def test_a_second_start_is_undone_with_the_others_or_when_it_comes_late() -> None:
    case = await given(court, Trial, Deposit(id="t", n=0), Deposit(id="t", n=1))
    case.then(status="running", done=["opened", "opened"])
    assert case.history[-1].note == "the saga was started before: its undo will be run for this one too"
    await case.when(Word(id="t", word="compensate"))
    case.then(status="compensated", published=[Asked(id="t", n=1), Asked(id="t", n=0)])
    (await case.when(Deposit(id="t", n=2))).then(status="compensated", published=[Asked(id="t", n=2)])
    case = await given(court, Trial, Deposit(id="t", n=0), Word(id="t", word="complete"), Deposit(id="t", n=1))
    case.then(status="completed", done=["opened"], published=[Asked(id="t", n=1)])


async def test_an_answer_to_a_request_that_is_over_ends_no_other_undo() -> None:
    twins = Service("twins", namespace="town")

    @twins.saga("twin", correlate="id")
    class Twin(Saga):
        id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Deposit)
        def deposit(self, event: Event[Deposit], turn: Turn) -> None: ...

        @undo(deposit, until=Returned, within=60.0)
        def back(self, event: Event[Deposit], turn: Turn) -> None:
            turn.publish(Wanted(id=self.id, n=event.data.n))

        @step(Fee)
        def fee(self, event: Event[Fee], turn: Turn) -> None: ...

        @undo(fee, until=Returned, within=60.0)
        def fee_back(self, event: Event[Fee], turn: Turn) -> None:
            turn.publish(Wanted(id=self.id, n=event.data.n))

        @on(Word)
        def heard(self, event: Event[Word], turn: Turn) -> None:
            turn.compensate("enough")

    @twins.event("money.wanted.v1", key="id")
    class Wanted(Payload):
        id: str
        n: int

    async with Harness(twins, court) as h:
        async with twins.transaction("t1") as tx:
            await twins.start_saga(tx, Twin(id="t"))
        for fact in (Deposit(id="t", n=1), Fee(id="t", n=2), Word(id="t", word="enough")):
            await h.publish(fact)
            await h.settled()
        desk = app_of(twins).sagas
        await desk.retry("twin", "t", tenant="t1")
        await h.settled()
        first, second = await h.published(Wanted)
        for asked in (first, second, first):
            await h.publish(Returned(id="t", n=2), causation=asked.id)
            await h.settled()
        view = await desk.show("twin", "t", tenant="t1")
        assert (view.row.status, view.row.steps) == ("compensating", ("begin", "deposit"))
        assert view.history[-1].note == "it answers what fee_back asked for, which is over"
        third = (await h.published(Wanted))[-1]
        await h.publish(Returned(id="t", n=1), causation=third.id)
        await h.settled()
        view = await desk.show("twin", "t", tenant="t1")
        assert view.row.status == "compensated"
        await assert_replays(twins, [view])


async def ring(event: Event[Fee]) -> str:
    raise AssertionError("nobody rings in these tests")


@court.saga("appeal", correlate="id", policy=Policy(max_attempts=1))
class Appeal(Saga):
    id: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @step(Fee, calling=ring)
    def paid(self, event: Event[Fee], turn: Turn, receipt: str) -> None: ...

    @on(Word)
    def heard(self, event: Event[Word], turn: Turn) -> None:
        _decide(event.data.word, turn)


@pytest.mark.parametrize("first", ["the word", "the call"])
async def test_what_a_person_must_decide_is_not_forgotten_when_a_call_beside_it_is_answered(first: str) -> None:
    case = await given(court, Appeal(id="t"), Fee(id="t", n=1))
    if first == "the word":
        await case.when(Word(id="t", word="partial"))
    await case.answer("paid", ConnectionError("down"))
    if first == "the call":
        case.then(status="partial")
        await case.when(Word(id="t", word="partial"))
    case.then(status="partial", reason="somebody must look at it")
    (await case.retry()).then(status="partial", calls=["paid"])
    (await case.answer("paid", "receipt")).then(
        status="partial", reason="somebody must look at it", done=["begin", "paid"]
    )
    assert case.row.tasks


async def test_what_waits_for_its_start_has_no_index_to_be_filled() -> None:
    async with Harness(court) as h:
        await h.publish(Fee(id="t", n=1))
        await h.settled()
        assert await app_of(court).sagas.fill_index() == 0
        assert [row.status async for row in app_of(court).sagas.find()] == ["awaited", "awaited"]
