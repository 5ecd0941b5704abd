"""Failures: each is one line with its facts as fields, and is told to the hook, which can break nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from posthouse import (
    App,
    Event,
    Failure,
    Payload,
    Policy,
    Reject,
    RetryLater,
    Saga,
    Service,
    Turn,
    Tx,
    starts,
    undo,
)
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.events import timestamp
from posthouse.seam import failures
from posthouse.testing import Harness
from posthouse.watch.logs import JsonLines, PlainLines
from tests.kit.waiting import eventually


class Placed(Payload):
    order: str


class Broken(KeyError):
    """A user's own error."""


def shop_that(fail: Callable[[Event[Placed]], None], policy: Policy | None = None) -> Service:
    shop = Service("shop")
    shop.event("order.placed.v1", key="order")(Placed)

    @shop.on(Placed, consumer="billing", policy=policy)
    async def charge(event: Event[Placed], tx: Tx) -> None:
        fail(event)

    return shop


def broken(event: Event[Placed]) -> None:
    raise Broken("x")


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if hasattr(record, "outcome")]


async def test_a_failed_handler_is_one_line_with_everything_that_one_asks_for(caplog: pytest.LogCaptureFixture) -> None:
    async with Harness(shop_that(broken)) as harness:
        id = await harness.publish(Placed(order="o-1"), tenant="acme")
        await harness.settled()
        [held] = await harness.held(harness.services[0])
    [record] = told(caplog)
    fields = json.loads(JsonLines().format(record))
    assert fields["level"] == "warning"
    assert fields["error_type"] == "Broken"
    assert fields["error_message"] == "'x'"
    assert fields["event_type"] == "shop.order.placed.v1"
    assert (fields["event_id"], fields["tenant"], fields["key"]) == (id, "acme", "o-1")
    assert fields["consumer"] == "shop.billing"
    assert fields["handler"].endswith("shop_that.<locals>.charge")
    assert (fields["attempt"], fields["max_attempts"], fields["outcome"]) == (1, 7, "retry")
    assert fields["next_at"] == timestamp(held.next_at)
    for fact in ("Broken: 'x'", id, "acme", "o-1", "attempt 1 of 7", "shop.order.placed.v1", fields["next_at"]):
        assert fact in fields["event"]


async def test_the_traceback_is_that_of_the_users_code_and_holds_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    def leak(event: Event[Placed]) -> None:
        raise ConnectionError("cannot reach postgresql://shop:sesame@db/shop")

    async with Harness(shop_that(leak)) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
    [record] = told(caplog)
    text = PlainLines().format(record)
    assert "in leak" in text
    assert "seam/deadline.py" not in text, "it begins where it leaves our code"
    assert "sesame" not in text
    assert "sesame" not in JsonLines().format(record)


async def test_each_attempt_is_told_and_the_last_says_that_it_is_dead_and_what_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Harness(shop_that(broken, Policy(max_attempts=3, first_delay=1, last_delay=1))) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
        for _ in range(2):
            await harness.advance(2)
    records = told(caplog)
    assert [(vars(r)["attempt"], vars(r)["outcome"], r.levelname) for r in records] == [
        (1, "retry", "WARNING"),
        (2, "retry", "WARNING"),
        (3, "dead", "ERROR"),
    ]
    last = records[-1]
    assert vars(last)["next_at"] is None
    assert vars(last)["command"] == "posthouse held list TARGET --consumer shop.billing --state dead"
    assert "is dead (attempts spent): see `posthouse held list" in last.getMessage()


async def test_an_immediate_retry_is_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def once(event: Event[Placed]) -> None:
        seen.append(event.id)
        if len(seen) == 1:
            raise Broken("x")

    async with Harness(shop_that(once, Policy(retry_immediately=(Broken,)))) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
    assert len(seen) == 2
    assert [(vars(r)["attempt"], vars(r)["outcome"]) for r in told(caplog)] == [(1, "retry")]


async def test_who_asks_for_a_later_try_gets_a_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def later(event: Event[Placed]) -> None:
        raise RetryLater("the bank sleeps", seconds=60)

    async with Harness(shop_that(later)) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
    [record] = told(caplog)
    assert "RetryLater: the bank sleeps" in record.getMessage()
    assert record.exc_info is None


@pytest.mark.parametrize("moment", [1e12, 1e300, -1e300, float("inf"), float("nan")])
def test_a_failure_is_told_whatever_its_moment(moment: float, caplog: pytest.LogCaptureFixture) -> None:
    failures.Failures().report(failures.Failure(reason="x", outcome="retry", event_id="e-1", next_at=moment))
    [record] = told(caplog)
    assert vars(record)["next_at"][:4] in ("9999", "0001")


def test_a_log_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Unlogged(logging.Logger):
        def log(self, *args: object, **kwargs: object) -> None:
            raise OSError

    failures.Failures().report(failures.Failure(reason="x", outcome="retry", event_id="e-1"), Unlogged("x"))
    assert [record.getMessage() for record in caplog.records] == ["the failure of event e-1 could not be told"]


async def test_what_cannot_be_read_is_told_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Failure] = []
    shop = shop_that(broken)
    App(shop, store="sqlite://", broker="memory://", on_failure=heard.append)
    async with Harness(shop) as harness:
        await harness.broker.publish([Frame(topic="shop.order", id="junk", key=None, body=b"\xff")])
        await harness.settled()
        await eventually(lambda: heard)
    [failure] = heard
    assert (failure.outcome, failure.event_id, failure.dead) == ("quarantined", "junk", True)
    assert "unreadable" in failure.reason
    assert "is quarantined" in told(caplog)[0].getMessage()


class Refusing(MemoryBroker):
    """Refuses every frame of the topic of orders."""

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        return [Verdict(accepted=False, reason="too large for it") for _ in frames]


async def test_a_frame_that_the_broker_refuses_is_told_by_the_relay(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(shop_that(broken))
    harness.broker = Refusing(clock=harness.clock)
    async with harness:
        id = await harness.publish(Placed(order="o-1"), tenant="acme")
        [record] = await eventually(lambda: told(caplog))
    fields = vars(record)
    assert fields["reason"] == "the broker refused it: too large for it"
    assert (fields["event_type"], fields["event_id"], fields["tenant"], fields["key"], fields["topic"]) == (
        "shop.order.placed.v1", id, "acme", "o-1", "shop.order",
    )  # fmt: skip
    assert (fields["attempt"], fields["outcome"]) == (1, "retry")
    assert fields["next_at"] > timestamp(harness.clock.now())


async def test_an_undo_that_fails_is_told_with_its_saga(caplog: pytest.LogCaptureFixture) -> None:
    shop = Service("shop")
    shop.event("order.placed.v1", key="order")(Placed)

    @shop.saga("checkout", correlate="order", policy=Policy(max_attempts=2, first_delay=1, last_delay=1))
    class Checkout(Saga):
        order: str

        @starts
        async def begin(self, turn: Turn) -> None:
            turn.compensate("nobody pays")

        @undo(begin)
        async def give_back(self, turn: Turn) -> None:
            raise Broken("no way back")

    async with Harness(shop) as harness:
        async with shop.transaction("acme") as tx:
            await shop.start_saga(tx, Checkout(order="o-1"))
        await harness.settled()
        await harness.advance(2)
    records = [vars(record) for record in told(caplog)]
    assert [(r["attempt"], r["max_attempts"], r["outcome"]) for r in records] == [(1, 2, "retry"), (2, 2, "dead")]
    for fields in records:
        assert fields["handler"].endswith("Checkout.give_back")
        assert (fields["error_type"], fields["tenant"], fields["key"]) == ("Broken", "acme", "o-1")
    assert records[-1]["command"] == "posthouse saga show TARGET checkout o-1 --tenant acme"


# The hook.


def hooked(hook: Callable[[Failure], Awaitable[None] | None], policy: Policy | None = None) -> Service:
    """A service whose handler fails for every order but `fine`."""

    def fail(event: Event[Placed]) -> None:
        if event.data.order != "fine":
            raise Broken(event.data.order)

    shop = shop_that(fail, policy)
    App(shop, store="sqlite://", broker="memory://", on_failure=hook)
    return shop


@pytest.mark.parametrize("colour", ["plain", "async"])
async def test_a_hook_is_told_of_each_failure_in_order_with_the_exception(colour: str) -> None:
    heard: list[Failure] = []

    async def hear(failure: Failure) -> None:
        await asyncio.sleep(0)
        heard.append(failure)

    async with Harness(hooked(heard.append if colour == "plain" else hear)) as harness:
        for number in range(5):
            await harness.publish(Placed(order=f"o-{number}"), tenant="acme")
            await harness.settled()
        await eventually(lambda: len(heard) == 5)
    assert [failure.key for failure in heard] == [f"o-{number}" for number in range(5)]
    for failure in heard:
        assert isinstance(failure.error, Broken)
        assert failure.error.__traceback__ is not None
        assert (failure.event_type, failure.consumer, failure.attempt) == ("shop.order.placed.v1", "shop.billing", 1)
        assert not failure.dead


@pytest.mark.parametrize("colour", ["plain", "async"])
async def test_a_hook_that_raises_changes_nothing(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    def complain(failure: Failure) -> None:
        raise OSError("no route to the tracker")

    async def complain_later(failure: Failure) -> None:
        raise OSError("no route to the tracker")

    async with Harness(hooked(complain if colour == "plain" else complain_later)) as harness:
        for order in ("o-1", "fine"):
            await harness.publish(Placed(order=order))
        figures = await harness.settled()
        assert (figures.lines[0].applied, figures.lines[0].held["retrying"]) == (1, 1)
        await eventually(lambda: "on_failure itself failed" in caplog.text)
    assert "no route to the tracker" in caplog.text


@pytest.mark.parametrize("colour", ["plain", "async"])
async def test_a_hook_that_hangs_keeps_nobody_and_is_left_alone(
    colour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "WITHIN", 0.02)
    monkeypatch.setattr(failures, "LAST_WORDS", 0.02)
    free = threading.Event()
    called: list[str | None] = []

    def hang(failure: Failure) -> None:
        called.append(failure.key)
        free.wait()

    async def hang_deaf(failure: Failure) -> None:
        called.append(failure.key)
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    try:
        async with Harness(hooked(hang if colour == "plain" else hang_deaf)) as harness:
            for number in range(8):
                await harness.publish(Placed(order=f"o-{number}"))
            figures = await harness.settled()
            assert figures.lines[0].held["retrying"] == 8
            await eventually(lambda: len(called) == failures.HANGING)
            await harness.publish(Placed(order="o-9"))
            await harness.publish(Placed(order="fine"))
            assert (await harness.settled()).lines[0].applied == 1
            await eventually(lambda: "on_failure does not keep up" in caplog.text)
        assert len(called) == failures.HANGING, "no more than so many threads or tasks are left behind"
    finally:
        free.set()


async def test_a_burst_of_failures_waits_in_a_line_that_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "WAITING", 3)
    gate = asyncio.Event()
    heard: list[str | None] = []

    async def slowly(failure: Failure) -> None:
        await gate.wait()
        heard.append(failure.key)

    async with Harness(hooked(slowly)) as harness:
        for number in range(10):
            await harness.publish(Placed(order=f"o-{number}"))
        assert (await harness.settled()).lines[0].held["retrying"] == 10
        gate.set()
        await eventually(lambda: len(heard) >= 3)
    assert len(heard) <= 5


async def test_what_the_hook_has_not_heard_yet_it_hears_before_everything_is_closed() -> None:
    heard: list[Failure] = []

    async def slowly(failure: Failure) -> None:
        await asyncio.sleep(0.05)
        heard.append(failure)

    async with Harness(hooked(slowly)) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
    assert len(heard) == 1


async def test_an_event_that_is_rejected_is_dead_for_the_hook_at_once() -> None:
    heard: list[Failure] = []

    def reject(event: Event[Placed]) -> None:
        raise Reject("not ours")

    shop = shop_that(reject)
    App(shop, store="sqlite://", broker="memory://", on_failure=heard.append)
    async with Harness(shop) as harness:
        await harness.publish(Placed(order="o-1"))
        await harness.settled()
        await eventually(lambda: heard)
    [failure] = heard
    assert (failure.dead, failure.reason, failure.next_at) == (True, "rejected", None)
