"""What is stored is compared with the class that will run it: at the start, by the doctor and by `saga check`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from posthouse import Payload, Policy, Saga, Service, Settings, Turn, deadline, field, on, starts, step, undo
from posthouse.app import App, app_of
from posthouse.cli.doctor import examine_all
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.processes import SagaType
from posthouse.processes.saga import comparing
from posthouse.processes.saga.comparing import misfits
from posthouse.processes.saga.declaring import saga_type_of
from posthouse.store.sagas import Armed, CallOut, Done, SagaFilter, SagaInput, SagaRow, SagaTurn, Undoing, Waiting
from tests.kit.waiting import eventually

till = Service("till")


@till.event("paid.v1", key="order_id")
class Paid(Payload):
    order_id: str


@till.event("refunded.v1", key="order_id")
class Refunded(Payload):
    order_id: str


@till.event("withdrawn.v1", key="order_id")
class Withdrawn(Payload):
    order_id: str


class First(Saga):
    order_id: str
    points: int = 0

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.slow)

    @step(Paid)
    def paid(self, event: Event[Paid], turn: Turn) -> None: ...

    @undo(paid, until=Refunded)
    def refund(self, event: Event[Paid], turn: Turn) -> None: ...

    @deadline(10.0)
    def slow(self, turn: Turn) -> None: ...


class Grown(First):
    currency: str = "EUR"


class Forgot(Saga):
    """Knows neither the step, nor the deadline, nor the field."""

    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @on(Paid)
    def noted(self, event: Event[Paid], turn: Turn) -> None: ...


class Renamed(First):
    points: int = 0
    total: int = field(was="sum", default=0)


class Demanding(First):
    currency: str


def declared(cls: type[Saga]) -> SagaType:
    return saga_type_of(cls, "order", service="shop", correlate="order_id", policy=Policy())


PAID = Done("paid", 2, undoable=True, event="till.paid.v1")

STORED = SagaRow(
    saga="order",
    tenant="t1",
    id="7",
    state=b'{"order_id":"7","points":1,"sum":2}',
    done=(Done("begin", 1), PAID),
    deadlines={"slow": Armed("e1", 1.0), "undo within": Armed("e2", 1.0)},
    status="compensating",
    undoing=Undoing(of=PAID, waiting=True),
)


def found(cls: type[Saga], row: SagaRow = STORED, history: Sequence[SagaTurn] | None = None) -> list[tuple[str, str]]:
    return [(one.judgement, one.found) for one in misfits(declared(cls), row, history)]


def test_a_field_that_nobody_knows_is_worth_a_word() -> None:
    assert found(First) == [("warn", "the field 'sum' is stored, and First does not know it")]
    assert found(Grown) == [("warn", "the field 'sum' is stored, and Grown does not know it")]


def test_an_old_name_that_is_declared_is_known() -> None:
    assert found(Renamed) == []


def test_what_could_not_go_on_is_a_failure() -> None:
    row = replace(STORED, state=b'{"order_id":"7"}')
    assert found(Forgot, row) == [
        ("fail", "the step 'paid' is done, and Forgot does not declare it"),
        ("fail", "the deadline 'slow' is armed, and Forgot does not declare it"),
        ("fail", "the undo of 'paid' waits for its fact, and Forgot declares none"),
    ]


def test_an_undo_that_vanished_from_a_step_that_is_done_is_a_failure() -> None:
    """It would be passed over, and what the step took would be kept."""

    class Keeping(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None: ...

    row = replace(STORED, state=b'{"order_id":"7"}', deadlines={}, undoing=None)
    assert found(Keeping, row) == [("fail", "the step 'paid' is done and had an undo, and Keeping declares none")]
    assert found(Keeping, replace(row, done=(Done("begin", 1), Done("paid", 2)))) == []


class Receipt(msgspec.Struct):
    number: str


async def charge(event: Event[Paid]) -> str:
    return "r1"


async def charge_with_receipt(event: Event[Paid]) -> Receipt:
    return Receipt("r1")


class Calling(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @step(Paid, calling=charge)
    def paid(self, event: Event[Paid], turn: Turn, answer: str) -> None: ...

    @undo(paid)
    def refund(self, event: Event[Paid], turn: Turn, answer: str) -> None: ...


class OtherAnswer(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @step(Paid, calling=charge_with_receipt)
    def paid(self, event: Event[Paid], turn: Turn, answer: Receipt) -> None: ...

    @undo(paid)
    def refund(self, event: Event[Paid], turn: Turn, answer: Receipt) -> None: ...


class OtherEvent(Saga):
    """Also takes the event of before, elsewhere."""

    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @step(Refunded)
    def paid(self, event: Event[Refunded], turn: Turn) -> None: ...

    @undo(paid)
    def refund(self, event: Event[Refunded], turn: Turn) -> None: ...

    @on(Paid)
    def noted(self, event: Event[Paid], turn: Turn) -> None: ...


RUNNING = SagaRow(saga="order", tenant="t1", id="7", state=b'{"order_id":"7"}', done=(Done("begin", 1), PAID))


def test_an_undo_must_be_given_the_event_of_its_step_and_the_answer_of_its_call() -> None:
    assert found(First, RUNNING) == []
    assert found(OtherEvent, RUNNING) == [
        (
            "fail",
            "the step 'paid' was done by till.paid.v1, which it does not take any more, and OtherEvent.refund would be given that",
        )
    ]
    assert found(Calling, RUNNING) == [
        ("fail", "the step 'paid' was done without a call, and Calling.refund would be given its answer")
    ]
    assert found(Calling, replace(RUNNING, done=(replace(PAID, answered=True),))) == []
    assert found(First, replace(RUNNING, done=(replace(PAID, event=""),))) == [
        ("fail", "the step 'paid' was done without an event, and First.refund would be given one")
    ]


def test_an_undo_must_be_able_to_read_them() -> None:
    row = replace(RUNNING, done=(replace(PAID, answered=True),))
    paid = msgspec.Raw(b'{"order_id":"7"}')
    came = SagaInput(kind="answer", type="till.paid.v1", event_id="e1", data=paid, answer=msgspec.Raw(b'"r1"'))
    turn = SagaTurn(turn=2, at=1.0, input=came, status="running")
    assert found(Calling, row, [turn]) == []
    assert found(OtherAnswer, row, [turn]) == [
        (
            "fail",
            "what the call of 'paid' was answered does not fit OtherAnswer any more: Expected `object`, got `str`",
        )
    ]
    odd = replace(turn, input=replace(came, data=msgspec.Raw(b'{"order":"7"}')))
    ((judgement, words),) = found(Calling, row, [odd])
    assert (judgement, words[:38]) == ("fail", "the event of 'paid' does not fit: Obje")
    assert found(Calling, row, []) == [("fail", "the step 'paid' is done, and the history has no event of it")]


def test_releases_differ_in_what_a_call_is_answered_and_in_what_an_undo_waits_for() -> None:
    class Bare(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None: ...

    class Waits(Bare):
        @undo(Bare.paid, until=Refunded)
        def refund(self, event: Event[Paid], turn: Turn) -> None: ...

    class Refusable(Bare):
        @undo(Bare.paid, until=Refunded, unless=Withdrawn)
        def refund(self, event: Event[Paid], turn: Turn) -> None: ...

    several = [Calling, OtherAnswer, Bare, Waits, Refusable]
    assert len({declared(cls).release for cls in several}) == len(several)
    assert declared(Calling).release == declared(Calling).release


async def test_a_start_refuses_a_saga_whose_name_another_service_has_in_the_same_store(tmp_path: Path) -> None:
    """Rows have no other name: it would be told of the other's that there is one with this id."""
    await two_are_running(tmp_path)
    with pytest.raises(
        ConfigurationError, match="the service shop has sagas of this name in the same store; rename one"
    ):
        async with release(tmp_path, First, name="billing").running():
            pass
    async with release(tmp_path, First).running():
        pass
    async with release(tmp_path, First, name="store", saga_misfits="start").running():
        pass


async def test_a_start_reads_what_undos_would_be_given(tmp_path: Path) -> None:
    service = release(tmp_path, Calling)
    App(till, store=f"sqlite:///{tmp_path}/till.db", broker=f"embedded:///{tmp_path}/log.db")
    async with service.running(), till.running():
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, Calling(order_id="7"))
        async with till.transaction("t1") as tx:
            tx.publish(Paid(order_id="7"))
        await eventually(lambda: _has_paid(service))
    with pytest.raises(ConfigurationError, match="what the call of 'paid' was answered does not fit OtherAnswer"):
        async with release(tmp_path, OtherAnswer).running():
            pass
    with pytest.raises(ConfigurationError, match="which it does not take any more"):
        async with release(tmp_path, OtherEvent).running():
            pass


async def _has_paid(service: Service) -> bool:
    (row,) = await app_of(service).store.sagas.find(SagaFilter())
    return row.steps == ("begin", "paid")


def test_an_event_that_waits_and_a_call_that_is_out_must_be_known() -> None:
    waits = Waiting(event_id="e1", type="till.refunded.v1", method="refunded", since=0.0, until=1.0)
    row = SagaRow(saga="order", tenant="t1", id="7", status="awaited", waiting=(waits,))
    assert found(First, row) == []
    assert found(Forgot, row) == [("fail", "an event till.refunded.v1 waits for its turn, and Forgot does not take it")]
    row = SagaRow(saga="order", tenant="t1", id="7", state=b'{"order_id":"7"}', calls=(CallOut(step="paid", turn=2),))
    assert found(First, row) == [("fail", "the call of 'paid' is out, and First makes none there")]


def test_a_state_that_does_not_decode_is_a_failure() -> None:
    assert found(Demanding) == [("fail", "the state does not fit Demanding: Object missing required field `currency`")]


def release(folder: Path, cls: type[Saga], *, name: str = "shop", **settings: object) -> Service:
    service = Service(name)
    App(
        service,
        store=f"sqlite:///{folder}/store.db",
        broker=f"embedded:///{folder}/log.db",
        settings=msgspec.convert(settings, Settings) if settings else None,
    )
    service.saga("order", correlate="order_id")(cls)
    return service


async def two_are_running(folder: Path) -> None:
    service = release(folder, First)
    async with service.running(), service.transaction("t1") as tx:
        for id in ("7", "8"):
            await service.start_saga(tx, First(order_id=id))


REFUSAL = (
    "saga order: the deadline 'slow' is armed, and Forgot does not declare it (2 of them, as 7 of t1); bring it back until no "
    "saga has it, or let the release before run these to their end"
)


async def test_a_start_refuses_what_could_not_go_on(tmp_path: Path) -> None:
    await two_are_running(tmp_path)
    service = release(tmp_path, Forgot)
    with pytest.raises(ConfigurationError) as caught:
        async with service.running():
            pass
    assert list(caught.value.problems) == [REFUSAL]


async def test_a_saga_that_is_not_declared_at_all_any_more_is_missed(tmp_path: Path) -> None:
    await two_are_running(tmp_path)
    service = Service("shop")
    App(service, store=f"sqlite:///{tmp_path}/store.db", broker=f"embedded:///{tmp_path}/log.db")
    with pytest.raises(
        ConfigurationError, match=r"it is not over, and shop does not declare such a saga any more \(2 of them"
    ):
        async with service.running():
            pass
    other = Service("stock")  # another service in the same store, which never had it
    App(other, store=f"sqlite:///{tmp_path}/store.db", broker=f"embedded:///{tmp_path}/log.db")
    async with other.running():
        pass


async def test_an_operator_may_start_all_the_same_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await two_are_running(tmp_path)
    service = release(tmp_path, Forgot, saga_misfits="start")
    with caplog.at_level(logging.WARNING, "posthouse.app"):
        async with service.running():
            pass
    assert f"shop: {REFUSAL}" in caplog.messages


async def test_the_doctor_finds_it_and_counts(tmp_path: Path) -> None:
    await two_are_running(tmp_path)
    for cls, judgements in ((Forgot, {"fail", "warn"}), (Grown, {"ok"})):
        store, _ = await examine_all([release(tmp_path, cls)])
        checks = [check for check in store.checks if check.name == "saga order"]
        assert {check.judgement for check in checks} == judgements
    assert checks[0].found == "2 that are not over fit the class"


async def test_sagas_that_are_over_are_left_alone(tmp_path: Path) -> None:
    await two_are_running(tmp_path)
    service = release(tmp_path, First)
    async with service.running():
        for id in ("7", "8"):
            await app_of(service).sagas.cancel("order", id, "closed", tenant="t1")
    service = release(tmp_path, Forgot)
    async with service.running():
        comparison = await app_of(service).sagas.compare()
    assert (comparison.counts, comparison.findings) == ({"order": 0}, [])


async def test_of_very_many_the_oldest_and_the_newest_are_compared_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "SHAPED", 1)
    first = release(tmp_path, First)
    async with first.running():
        for id in ("o1", "o2", "o3"):
            async with first.transaction("t1") as tx:
                await first.start_saga(tx, First(order_id=id))
        few = await app_of(first).sagas.compare()
        assert (few.counts, few.besides, few.findings) == ({"order": 2}, {"order": 1}, [])
        assert "1 more, begun between these, were not compared" in few.checks()[0].found
        every = await app_of(first).sagas.compare(every=True)
        assert (every.counts, every.besides) == ({"order": 3}, {})
        monkeypatch.setattr(comparing, "SHAPED", 4)
        whole = await app_of(first).sagas.compare()
        assert (whole.counts, whole.besides) == ({"order": 3}, {})
