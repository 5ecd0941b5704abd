"""Deadlines of a claim: three working days in Kabul, and the last day of a policy."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

from posthouse import Payload, Saga, Service, Turn, WorkWeek, app_of, deadline, starts
from posthouse.testing import Harness

holidays = {date(2027, 1, 17)}

kabul = WorkWeek(tz="Asia/Kabul", off=("friday",), hours=("08:00", "16:00"), holidays=holidays)
claims = Service("claims", calendar=kabul)


class Bank:
    """Pays at noon, on the next day that it is open."""

    def working_days(self, start: datetime, days: int) -> datetime:
        return datetime.combine(kabul.working_days(start, days), time(12), ZoneInfo("Asia/Kabul"))

    def working_hours(self, start: datetime, hours: float) -> datetime:
        return self.working_days(start, 1)


@claims.event("claim.escalated.v1", key="claim_id")
class ClaimEscalated(Payload):
    """Nobody has answered in time."""

    claim_id: str


@claims.saga("claim", correlate="claim_id")
class ClaimSaga(Saga):
    """A claim that somebody should answer."""

    claim_id: str
    valid_until: datetime

    @starts
    def open(self, turn: Turn) -> None:
        turn.set(self.unanswered)
        turn.set(self.lapsed, at=self.valid_until)

    @deadline(working_days=3)
    def unanswered(self, turn: Turn) -> None:
        turn.publish(ClaimEscalated(claim_id=self.claim_id))

    @deadline(working_hours=2, calendar=Bank())
    def unpaid(self, turn: Turn) -> None:
        turn.compensate("unpaid")

    @deadline()
    def lapsed(self, turn: Turn) -> None:
        turn.compensate("lapsed")


async def main() -> None:
    async with Harness(claims) as harness:  # Friday, 15 January 2027, 12:30 in Kabul
        async with claims.transaction("t1") as tx:
            until = datetime(2027, 2, 1, tzinfo=ZoneInfo("Asia/Kabul"))
            await claims.start_saga(tx, ClaimSaga(claim_id="c1", valid_until=until))
        view = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
        for name, armed in view.row.deadlines.items():
            print(
                f"{name} at {datetime.fromtimestamp(armed.due_at, UTC).astimezone(ZoneInfo('Asia/Kabul')):%a %d %b %H:%M}"
            )
        await harness.advance(30 * 24 * 3600)
        view = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
        print(f"{view.row.status}: {view.row.reason}, {len(await harness.published(ClaimEscalated))} escalated")


if __name__ == "__main__":
    asyncio.run(main())
