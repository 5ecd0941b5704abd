"""An inn: a saga, a consumer that may fail, a schedule and a read model. Loaded anew by each test: its services are of that test alone."""

from __future__ import annotations

from posthouse import Event, Model, Payload, Policy, Run, Service, Tx
from posthouse.processes import Saga, Turn, deadline, on, partial_retry, starts, step, undo

inn = Service("inn", namespace="house")
till = Service("till", namespace="house")


@till.event("intent.captured.v1", key="stay_id")
class Captured(Payload):
    stay_id: str


@till.event("intent.failed.v1", key="stay_id")
class Failed(Payload):
    stay_id: str


@till.event("review.opened.v1", key="stay_id")
class Reviewed(Payload):
    stay_id: str


@inn.event("stay.held.v1", key="stay_id")
class Held(Payload):
    stay_id: str


@inn.event("stay.dropped.v1", key="stay_id")
class Dropped(Payload):
    stay_id: str


@inn.saga("stay", correlate="stay_id", policy=Policy(max_attempts=1))
class Stay(Saga):
    """Hold a room, take the money."""

    stay_id: str
    guest: str = ""

    @starts
    def hold(self, turn: Turn) -> None:
        turn.publish(Held(stay_id=self.stay_id))
        turn.set(self.hold_expired)

    @undo(hold)
    def drop_hold(self, turn: Turn) -> None:
        if self.stay_id.startswith("stubborn"):
            raise RuntimeError("the key of Zahra would not turn")
        turn.publish(Dropped(stay_id=self.stay_id))

    @deadline(3600.0)
    def hold_expired(self, turn: Turn) -> None:
        turn.compensate("nobody came")

    @step(Captured)
    def paid(self, event: Event[Captured], turn: Turn) -> None:
        turn.clear(self.hold_expired)
        turn.complete("all is well")

    @on(Failed)
    def not_paid(self, event: Event[Failed], turn: Turn) -> None:
        turn.compensate("no money")

    @on(Reviewed)
    def reviewed(self, event: Event[Reviewed], turn: Turn) -> None:
        turn.partial("under review")

    @partial_retry
    def look_again(self, turn: Turn) -> None:
        self.guest = "seen"


@till.on(Held, policy=Policy(max_attempts=1))
async def charge(event: Event[Held], tx: Tx) -> None:
    if event.data.stay_id.startswith("poor"):
        raise ValueError("no money")


@inn.every("0 6 * * *", tz="Asia/Kabul")
async def night_audit(run: Run, tx: Tx) -> None: ...


board = inn.projection("board", lag_budget=5.0, cross_tenant=True)


@board.setup
async def tables(model: Model) -> None:
    await model.execute(f"CREATE TABLE {model.table('guest')} (stay_id TEXT)")


@board.on(Held)
async def arrived(event: Event[Held], model: Model) -> None:
    await model.execute(f"INSERT INTO {model.table('guest')} VALUES ('one')")
