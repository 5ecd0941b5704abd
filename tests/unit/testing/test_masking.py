"""Histories leave production without personal data, and can be replayed all the same."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from posthouse import App, Event, Payload, Personal, Saga, Service, Turn, starts, step
from posthouse.processes import SagaView
from posthouse.store.sagas import SagaInput, SagaRow, SagaTurn
from posthouse.testing import Harness
from posthouse.testing.histories import assert_replays, dump, histories, load
from posthouse.testing.masking import Masks


def clinic() -> tuple[Service, type[Saga], type[Payload], type[Payload]]:
    service = Service("clinic")
    App(service, store="sqlite://", broker="embedded://")

    @service.event("guest.named.v1", key="visit")
    class Named(Payload):
        visit: str
        email: Annotated[str, Personal("contact")]
        born: Annotated[str, Personal("identity")]

    @service.event("letter.sent.v1", key="visit")
    class Sent(Payload):
        visit: str
        to: Annotated[str, Personal("contact")]

    @service.saga("visit", correlate="visit")
    class Visit(Saga):
        visit: str
        email: Annotated[str, Personal("contact")] = ""

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Named)
        def named(self, event: Event[Named], turn: Turn) -> None:
            self.email = event.data.email
            turn.publish(Sent(visit=self.visit, to=self.email))
            turn.complete()

    return service, Visit, Named, Sent


async def test_what_is_personal_is_masked_and_the_history_still_replays() -> None:
    service, visit, named, _ = clinic()
    async with Harness(service) as harness:
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, visit(visit="v1"))
        await harness.publish(named(visit="v1", email="ada@example.com", born="1815-12-10"), tenant="t1")
        await harness.settled()
        views = [view async for view in histories(service)]
    masks = Masks(service)
    text = dump([masks.masked(view) for view in views])
    assert b"ada@" in dump(views)
    assert b"ada@" not in text
    assert b"1815" not in text
    (masked,) = load(text)
    assert b"ada@" not in masked.row.state
    assert masked.history[1].input.data != views[0].history[1].input.data
    await assert_replays(service, [masked])


bank = Service("bank")


@bank.event("payout.asked.v1", key="claim")
class Asked(Payload):
    claim: str
    iban: Annotated[str, Personal("account")]


class Receipt(msgspec.Struct):
    holder: Annotated[str, Personal("identity")]


async def pay(event: Event[Asked]) -> Receipt:
    return Receipt(holder=event.data.iban)


def test_an_answer_of_the_outside_and_its_event_are_masked_too() -> None:
    @bank.saga("claim", correlate="claim")
    class Claim(Saga):
        claim: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Asked, calling=pay)
        def paid(self, event: Event[Asked], turn: Turn, receipt: Receipt) -> None: ...

    given = SagaInput(
        kind="answer",
        type="bank.payout.asked.v1",
        data=msgspec.Raw(b'{"claim":"c1","iban":"DE02"}'),
        answer=msgspec.Raw(b'{"holder":"Ada"}'),
    )
    turn = SagaTurn(turn=2, at=0.0, input=given, status="running", state=msgspec.Raw(b'{"claim":"c1"}'))
    row = SagaRow(saga="claim", tenant="t1", id="c1", state=b'{"claim":"c1"}')
    text = dump([Masks(bank).masked(SagaView(row=row, history=[turn]))])
    assert b"DE02" not in text
    assert b"Ada" not in text
    assert b'"claim":"c1"' in text


async def test_no_history_proves_nothing() -> None:
    service, *_ = clinic()
    with pytest.raises(AssertionError, match="proves nothing"):
        await assert_replays(service, [])
