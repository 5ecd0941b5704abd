"""Deadlines and facts at a moment, and deadlines by a calendar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from posthouse import Payload, Service, WorkWeek
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, deadline, starts
from posthouse.store.sagas import SagaFilter, SagaRow, SagaTurn
from posthouse.testing import Harness
from posthouse.testing.histories import assert_replays, histories

holidays: set[date] = set()
claims = Service(
    "claims", calendar=WorkWeek(tz="Asia/Kabul", off=("friday",), hours=("08:00", "16:00"), holidays=holidays)
)

Act = Callable[["Claim", Turn], object]
ACT: list[Act] = []


@claims.event("claim.remembered.v1")
class ClaimRemembered(Payload):
    number: int = 0


@claims.saga("claim", correlate="claim_id")
class Claim(Saga):
    claim_id: str

    @starts
    def open(self, turn: Turn) -> None:
        ACT[-1](self, turn)

    @deadline()
    def expired(self, turn: Turn) -> None:
        turn.complete("expired")

    @deadline(working_days=3)
    def unanswered(self, turn: Turn) -> None:
        turn.complete("unanswered")

    @deadline(working_hours=2, calendar=WorkWeek(tz="UTC", off=()))
    def slow(self, turn: Turn) -> None:
        turn.complete("slow")


@pytest.fixture(autouse=True)
def _nothing_special() -> None:
    holidays.clear()


async def begun(act: Act) -> None:
    ACT.append(act)
    async with claims.transaction("t1") as tx:
        await claims.start_saga(tx, Claim(claim_id="1"))


async def claim() -> SagaRow:
    (row,) = await app_of(claims).store.sagas.find(SagaFilter(id="1"))
    return row


async def turns() -> list[SagaTurn]:
    return list(await app_of(claims).store.sagas.history("claim", "t1", "1"))


async def test_a_deadline_at_a_moment_passes_then_whatever_zone_it_was_said_in() -> None:
    async with Harness(claims) as h:
        at = datetime.fromtimestamp(h.clock.now() + 7200, ZoneInfo("Asia/Kabul"))
        await begun(lambda saga, turn: turn.set(saga.expired, at=at))
        assert (await turns())[0].deadlines_set == {"expired": at}
        await h.advance(7199)
        assert (await claim()).status == "running"
        await h.advance(1)
        assert (await claim()).note == "expired"


async def test_a_moment_that_is_past_passes_at_once() -> None:
    async with Harness(claims) as h:
        await begun(lambda saga, turn: turn.set(saga.expired, at=datetime(2001, 1, 1, tzinfo=UTC)))
        await h.settled()
        assert (await claim()).note == "expired"


async def test_a_deadline_moves_from_a_moment_to_seconds_and_back() -> None:
    async with Harness(claims) as h:

        def twice(saga: Claim, turn: Turn) -> None:
            turn.set(saga.expired, at=datetime(2001, 1, 1, tzinfo=UTC))
            turn.set(saga.expired, 10)

        await begun(twice)
        assert (await turns())[0].deadlines_set == {"expired": 10}
        await h.settled()
        assert (await claim()).status == "running"
        await h.advance(10)
        assert (await claim()).note == "expired"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at": datetime(2026, 11, 20, 12)}, r"Claim.open: turn.set\(at=2026-11-20 12:00:00\) has no time zone"),
        ({"at": "tomorrow"}, r"it is a datetime with a time zone"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "after": 3.0}, "says two times"),
    ],
)
async def test_what_is_no_moment_is_refused_where_it_is_said(arguments: dict[str, object], words: str) -> None:
    async with Harness(claims):
        with pytest.raises(ConfigurationError, match=words):
            await begun(lambda saga, turn: turn.set(saga.expired, **arguments))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=words.replace("Claim.open: turn.set", "publish")):
            await begun(lambda saga, turn: turn.publish(ClaimRemembered(), **arguments))  # type: ignore[arg-type]


async def test_a_fact_is_said_at_its_moment_and_the_history_tells_it() -> None:
    async with Harness(claims) as h:
        at = datetime.fromtimestamp(h.clock.now() + 100, UTC)

        def say(saga: Claim, turn: Turn) -> None:
            turn.publish(ClaimRemembered(number=1), at=at)
            turn.publish(ClaimRemembered(number=2), at=at - timedelta(days=1))

        await begun(say)
        await h.settled()
        assert [event.data.number for event in await h.published(ClaimRemembered)] == [2]
        await h.advance(100)
        assert [event.data.number for event in await h.published(ClaimRemembered)] == [2, 1]
        assert [said.at for said in (await turns())[0].published] == [at, at - timedelta(days=1)]
        said = (await h.published(ClaimRemembered))[0]
        assert datetime.fromisoformat(said.time) == at - timedelta(seconds=100), "said now, not yesterday"


async def test_a_named_fact_at_a_moment_can_be_cancelled() -> None:
    async with Harness(claims) as h:
        at = datetime.fromtimestamp(h.clock.now() + 100, UTC)
        async with claims.transaction("t1") as tx:
            tx.publish(ClaimRemembered(), at=at, timer="remember")
        async with claims.transaction("t1") as tx:
            assert await tx.cancel("remember")
        await h.advance(200)
        assert await h.published(ClaimRemembered) == []


async def test_working_days_are_those_of_the_services_calendar_and_are_kept_when_it_changes() -> None:
    async with Harness(claims) as h:  # 15 January 2027, 12:30 in Kabul: a Friday
        await begun(lambda saga, turn: turn.set(saga.unanswered))
        due = datetime(2027, 1, 18, 12, 30, tzinfo=ZoneInfo("Asia/Kabul"))
        assert (await turns())[0].deadlines_set == {"unanswered": due}
        holidays.add(date(2027, 1, 17))
        await h.advance(due.timestamp() - h.clock.now() - 1)
        assert (await claim()).status == "running"
        await h.advance(1)
        assert (await claim()).note == "unanswered"
        await assert_replays(claims, [view async for view in histories(claims)])


async def test_a_deadline_may_have_a_calendar_of_its_own() -> None:
    async with Harness(claims) as h:
        await begun(lambda saga, turn: turn.set(saga.slow))
        assert (await turns())[0].deadlines_set == {"slow": datetime.fromtimestamp(h.clock.now() + 7200, UTC)}


def test_working_time_without_a_calendar_is_refused_where_it_is_declared() -> None:
    bare = Service("bare")

    class Bare(Saga):
        bare_id: str

        @starts
        def open(self, turn: Turn) -> None: ...

        @deadline(working_days=1)
        def unanswered(self, turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError, match="unanswered counts working time, and there is no calendar"):
        bare.saga("bare", correlate="bare_id")(Bare)
