"""Spans of facts, batches and events: asserted as trees."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from posthouse import (
    App,
    Event,
    Failure,
    Model,
    Payload,
    Personal,
    Policy,
    Reject,
    RetryLater,
    Service,
    Tx,
    app_of,
    drained,
)
from posthouse.clock import ManualClock, new_id
from posthouse.errors import EventError
from posthouse.events.trace import correlation_to_trace_id, is_traceparent
from posthouse.seam.spans import Tracing
from posthouse.store import HeldFilter, Transaction
from posthouse.testing import Harness
from posthouse.watch import traces
from posthouse.watch.traces import OpenTelemetrySpans, spans_of
from tests.kit.spans import Collected, linked, place, trace_id
from tests.kit.waiting import eventually

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Shop:
    """What orders say, billing answers; a handler of each kind."""

    def __init__(self, folder: Path, collected: Collected | None, provider: TracerProvider | None = None) -> None:
        self.orders, self.billing = Service("orders"), Service("billing")
        self.spans: list[trace.SpanContext] = []
        """The current span of each call of a handler."""
        self.fails: list[Exception] = []
        """What the next calls raise."""
        self.headers: list[tuple[str | None, str | None]] = []

        @self.orders.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        @self.orders.event("order.noted.v1", key="order_id")
        class Noted(Payload):
            order_id: str

        @self.billing.event("invoice.issued.v1", key="order_id")
        class Issued(Payload):
            order_id: str

        @self.billing.on(Placed, policy=Policy(max_attempts=3, first_delay=0.01))
        async def issue(event: Event[Placed], tx: Tx) -> Issued:
            self.spans.append(trace.get_current_span().get_span_context())
            self.headers.append((event.traceparent, event.tracestate))
            if self.fails:
                raise self.fails.pop(0)
            if collected is not None:
                with collected.tracer.start_as_current_span("SELECT"):
                    await tx.execute("SELECT 1")
            return Issued(order_id=event.data.order_id)

        @self.orders.on(Issued)
        def note(event: Event[Issued]) -> None:
            self.spans.append(trace.get_current_span().get_span_context())

        def look_up(event: Event[Noted]) -> str:
            assert collected is not None
            with collected.tracer.start_as_current_span("GET"):
                return "found"

        @self.billing.on(Noted, calling=look_up)
        async def file(event: Event[Noted], tx: Tx, answer: str) -> None:
            assert answer == "found"

        self.placed, self.noted, self.issued = Placed, Noted, Issued
        self.url = f"sqlite:///{folder}/shop.db"
        self.app = App(
            self.orders,
            self.billing,
            store=self.url,
            broker=f"embedded:///{folder}/log.db",
            tracer_provider=provider if collected is None else collected.provider,
        )


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def shop(tmp_path: Path, collected: Collected) -> Shop:
    return Shop(tmp_path, collected)


async def ordered(shop: Shop, *, tenant: str = "t1", **context: str) -> None:
    async with shop.app.running():
        async with shop.orders.transaction(tenant, **context) as tx:  # type: ignore[arg-type]
            tx.publish(shop.placed(order_id="o1"))
        await drained(shop.orders, shop.billing)


async def test_a_request_its_facts_and_what_handlers_make_of_them_are_one_tree(
    shop: Shop, collected: Collected
) -> None:
    async with shop.app.running():
        with collected.tracer.start_as_current_span("POST /orders"):
            async with shop.orders.transaction("t1") as tx:
                tx.publish(shop.placed(order_id="o1"))
        await drained(shop.orders, shop.billing)
    assert collected.tree("posthouse.send") == [
        "POST /orders",
        "  create order.placed.v1",
        "    process issue",
        "      SELECT",
        "      create invoice.issued.v1",
        "        process note",
    ]
    assert len({trace_id(span) for span in collected.spans if span.name != "posthouse.send"}) == 1
    placed, issued = collected.named("posthouse.create")
    issue, note = collected.named("posthouse.process")
    assert (linked(issue), linked(note)) == ([place(placed).span_id], [place(issued).span_id])
    assert shop.spans == [place(issue), place(note)], "also in the thread of a plain handler"


async def test_a_span_says_which_event_whose_handler_and_how_it_ended_and_nothing_of_the_tenant(
    shop: Shop, collected: Collected
) -> None:
    await ordered(shop, tenant="somebody@example.org", correlation="c1")
    created, processed = collected.named("posthouse.create")[0], collected.named("posthouse.process")[0]
    assert created.attributes == {
        "posthouse.service": "orders",
        "posthouse.topic": "orders.order",
        "posthouse.type": "orders.order.placed.v1",
        "posthouse.event.id": (event := (created.attributes or {})["posthouse.event.id"]),
        "posthouse.correlation": "c1",
        "posthouse.key": "o1",
        "posthouse.outcome": "committed",
    }
    assert processed.attributes == {
        "posthouse.consumer": "billing",
        "posthouse.handler": "tests.unit.watch.test_traces.Shop.__init__.<locals>.issue",
        "posthouse.topic": "orders.order",
        "posthouse.type": "orders.order.placed.v1",
        "posthouse.event.id": event,
        "posthouse.correlation": "c1",
        "posthouse.key": "o1",
        "posthouse.attempt": 1,
        "posthouse.outcome": "applied",
    }
    assert "somebody" not in "".join(span.to_json() for span in collected.spans)


async def test_a_batch_is_sent_in_a_span_of_its_own_that_links_to_its_facts(shop: Shop, collected: Collected) -> None:
    async with shop.app.running(only=["relay"]):
        with collected.tracer.start_as_current_span("POST /orders"):
            async with shop.orders.transaction("t1") as tx:
                for number in range(3):
                    tx.publish(shop.placed(order_id=f"o{number}"))
        await eventually(lambda: collected.named("posthouse.send"))
    sent = collected.one("posthouse.send")
    assert sent.parent is None
    assert linked(sent) == [place(span).span_id for span in collected.named("posthouse.create")]
    assert dict(sent.attributes or {}) == {
        "posthouse.service": "orders, billing",
        "posthouse.batch.size": 3,
        "posthouse.topic": "orders.order",
        "posthouse.outcome": "accepted",
    }


async def test_a_batch_links_to_no_more_facts_than_an_sdk_keeps(shop: Shop, collected: Collected) -> None:
    async with shop.app.running(only=["relay"]):
        async with shop.orders.transaction("t1") as tx:
            for number in range(200):
                tx.publish(shop.placed(order_id=f"o{number}"))
        await eventually(lambda: collected.named("posthouse.send"))
    assert [len(span.links) for span in collected.named("posthouse.send")] == [128]


async def test_what_is_called_before_the_transaction_lies_below_too(shop: Shop, collected: Collected) -> None:
    async with shop.app.running():
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.noted(order_id="o1"))
        await drained(shop.orders, shop.billing)
    assert collected.tree("posthouse.send") == ["create order.noted.v1", "  process file", "    GET"]


# Where a trace begins.


@pytest.mark.parametrize("correlation", [new_id(), "01HYZ3N6Q4M8W2V5T7R9S1P3K5"])
async def test_a_trace_begins_from_the_correlation_when_none_came(
    shop: Shop, collected: Collected, correlation: str
) -> None:
    await ordered(shop, correlation=correlation)
    first = collected.named("posthouse.create")[0]
    assert (first.parent, trace_id(first)) == (None, correlation_to_trace_id(correlation))
    assert {trace_id(span) for span in collected.spans if span.name != "posthouse.send"} == {trace_id(first)}


async def test_a_fact_that_begins_a_correlation_begins_the_trace_of_that_id(shop: Shop, collected: Collected) -> None:
    await ordered(shop)
    first = collected.named("posthouse.create")[0]
    assert trace_id(first) == correlation_to_trace_id(str((first.attributes or {})["posthouse.event.id"]))


async def test_a_correlation_that_is_no_trace_id_begins_a_trace_of_any_id(shop: Shop, collected: Collected) -> None:
    await ordered(shop, correlation="order 17")
    assert len({trace_id(span) for span in collected.spans if span.name != "posthouse.send"}) == 1


async def test_a_traceparent_that_the_caller_gives_is_the_parent(shop: Shop, collected: Collected) -> None:
    with collected.tracer.start_as_current_span("another trace") as here:
        await ordered(shop, traceparent=FOREIGN)
    first = collected.named("posthouse.create")[0]
    assert first.parent is not None
    assert (f"{first.parent.trace_id:032x}", f"{first.parent.span_id:016x}") == (FOREIGN[3:35], FOREIGN[36:52])
    assert linked(first) == [here.get_span_context().span_id], "and what was current is not forgotten"
    assert {trace_id(span) for span in collected.named("posthouse.process")} == {FOREIGN[3:35]}


@pytest.mark.parametrize("bad", ["", "00-0-0-01", "ff-" + FOREIGN[3:], FOREIGN.replace("b7ad6b7169203331", "0" * 16)])
async def test_a_bad_traceparent_is_as_good_as_none(shop: Shop, collected: Collected, bad: str) -> None:
    await ordered(shop, traceparent=bad, correlation=(correlation := new_id()))
    assert trace_id(collected.named("posthouse.create")[0]) == correlation_to_trace_id(correlation)


async def test_an_event_of_a_service_that_does_not_trace_begins_a_trace(tmp_path: Path, collected: Collected) -> None:
    silent = Shop(tmp_path, None)
    async with silent.app.running(only=["relay"]):
        async with silent.orders.transaction("t1", correlation=(correlation := new_id())) as tx:
            tx.publish(silent.placed(order_id="o1"))
        await asyncio.to_thread(lambda: None)
    shop = Shop(tmp_path, collected)
    async with shop.app.running():
        await drained(shop.orders, shop.billing)
    first = collected.named("posthouse.process")[0]
    assert (first.parent, trace_id(first)) == (None, correlation_to_trace_id(correlation))
    assert collected.tree("posthouse.send")[0] == "process issue"


async def test_consumers_do_not_work_below_the_span_in_which_they_were_started(
    shop: Shop, collected: Collected
) -> None:
    with collected.tracer.start_as_current_span("start-up") as started:
        async with shop.app.running():
            with trace.use_span(trace.INVALID_SPAN):
                async with shop.orders.transaction("t1") as tx:
                    tx.publish(shop.placed(order_id="o1"))
            await drained(shop.orders, shop.billing)
    below = [span for span in collected.spans if trace_id(span) == f"{started.get_span_context().trace_id:032x}"]
    assert [span.name for span in below] == ["start-up"]


# What goes wrong.


async def test_each_run_has_a_span_that_says_what_it_failed_with_in_words_without_secrets(
    shop: Shop, collected: Collected
) -> None:
    shop.fails = [RuntimeError("postgresql://me:secret@db/shop is away"), RetryLater("not yet", seconds=0.01)]
    async with shop.app.running():
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.placed(order_id="o1"))
        await eventually(lambda: len(shop.spans) == 4, "the answer")
    assert collected.tree("posthouse.send") == [
        "create order.placed.v1",
        "  process issue",
        "    SELECT",
        "    create invoice.issued.v1",
        "      process note",
        "  process issue [retry]",
        "  process issue [retry]",
    ]
    first, second, third, _ = collected.named("posthouse.process")
    assert [(span.attributes or {})["posthouse.attempt"] for span in (first, second, third)] == [1, 2, 3]
    assert (first.status.status_code, third.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    [told] = first.events
    assert (told.attributes or {})["exception.type"] == "RuntimeError"
    assert "in issue" in str((told.attributes or {})["exception.stacktrace"])
    assert "is away" in str(first.status.description)
    assert "secret" not in "".join(span.to_json() for span in collected.spans)


async def test_an_event_that_is_dead_says_so(shop: Shop, collected: Collected) -> None:
    shop.fails = [Reject("never")]
    await ordered(shop)
    assert collected.tree("posthouse.send") == ["create order.placed.v1", "  process issue [dead]"]


async def test_a_fact_that_was_rolled_back_says_so_and_is_never_sent(shop: Shop, collected: Collected) -> None:
    async with shop.app.running():
        with contextlib.suppress(KeyError):
            async with shop.orders.transaction("t1") as tx:
                tx.publish(shop.placed(order_id="o1"))
                raise KeyError("changed my mind")
        await drained(shop.orders, shop.billing)
    [created] = collected.spans
    assert (created.attributes or {})["posthouse.outcome"] == "rolled back"
    assert created.status.status_code is StatusCode.ERROR


async def test_who_is_cancelled_while_it_commits_does_not_know_what_became_of_his_facts(
    shop: Shop, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop.app.running(only=["relay"]):
        begin = shop.app.store.begin

        @contextlib.asynccontextmanager
        async def cancelled(*, tenant: str) -> AsyncIterator[Transaction]:
            async with begin(tenant=tenant) as transaction:
                yield transaction
            raise asyncio.CancelledError

        monkeypatch.setattr(shop.app.store, "begin", cancelled)
        with pytest.raises(asyncio.CancelledError):
            async with shop.orders.transaction("t1") as tx:
                tx.publish(shop.noted(order_id="o1"))
        monkeypatch.setattr(shop.app.store, "begin", begin)
        with contextlib.suppress(asyncio.CancelledError):
            async with shop.orders.transaction("t1") as tx:
                tx.publish(shop.noted(order_id="o2"))
                raise asyncio.CancelledError
    outcomes = [(span.attributes or {})["posthouse.outcome"] for span in collected.named("posthouse.create")]
    assert outcomes == ["unknown", "rolled back"]


async def test_of_more_facts_than_are_waited_for_the_first_end_without_an_outcome(
    shop: Shop, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.watch.traces.OPEN", 2)
    async with shop.app.running(only=["relay"]), shop.orders.transaction("t1") as tx:
        for n in range(3):
            tx.publish(shop.noted(order_id=f"o{n}"))
    spans = collected.named("posthouse.create")
    assert [(span.attributes or {}).get("posthouse.outcome") for span in spans] == [None, "committed", "committed"]
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}


async def test_a_savepoint_that_is_rolled_back_takes_its_facts_and_no_other(shop: Shop, collected: Collected) -> None:
    async with shop.app.running(), shop.orders.transaction("t1") as tx:
        tx.publish(shop.noted(order_id="o1"))
        with contextlib.suppress(KeyError):
            async with tx.savepoint():
                tx.publish(shop.placed(order_id="o2"))
                raise KeyError
        tx.publish(shop.noted(order_id="o3"), after=3600)
    outcomes = [(span.attributes or {})["posthouse.outcome"] for span in collected.named("posthouse.create")]
    assert outcomes == ["committed", "rolled back", "committed"]


async def test_what_a_handler_said_before_it_failed_was_rolled_back(shop: Shop, collected: Collected) -> None:
    @shop.billing.on(shop.issued, consumer="fails")
    async def fails(event: Event[Payload], tx: Tx) -> None:
        tx.publish(shop.issued(order_id="again"), after=60)
        raise Reject("never")

    await ordered(shop)
    assert "        create invoice.issued.v1 [rolled back]" in collected.tree("posthouse.send")


async def test_a_fact_that_is_refused_says_so(shop: Shop, collected: Collected) -> None:
    async with shop.app.running():
        with pytest.raises(EventError, match="key has 2,000 bytes"):
            await publish(shop, shop.placed(order_id="o" * 2_000))
    assert [(span.attributes or {})["posthouse.outcome"] for span in collected.spans] == ["refused"]


async def publish(shop: Shop, fact: Payload) -> None:
    async with shop.orders.transaction("t1") as tx:
        tx.publish(fact)


# What is linked only.


async def test_an_event_that_is_run_an_hour_later_begins_a_trace_of_its_own_and_says_its_facts_in_the_old_one(
    shop: Shop, collected: Collected
) -> None:
    shop.fails = [RetryLater("tomorrow", seconds=3601.0)]
    async with Harness(shop.orders, shop.billing) as harness:
        await harness.publish(shop.placed(order_id="o1"))
        await harness.advance(3601.0)
    placed, issued = collected.named("posthouse.create")
    first, late, note = collected.named("posthouse.process")
    assert first.parent is not None
    assert (first.parent.span_id, late.parent) == (place(placed).span_id, None)
    assert linked(first) == linked(late) == [place(placed).span_id]
    assert trace_id(late) != trace_id(first)
    assert (trace_id(issued), linked(issued)) == (trace_id(placed), [place(late).span_id])
    assert trace_id(note) == trace_id(placed)


async def test_a_list_of_events_is_processed_in_one_span_that_links_to_all(shop: Shop, collected: Collected) -> None:
    @shop.billing.on(shop.issued, consumer="lists")
    async def archive(events: list[Event[Any]], tx: Tx) -> Payload:
        return shop.issued(order_id="all")

    async with shop.app.running(only=["relay"]):
        async with shop.billing.transaction("t1") as tx:
            for number in range(3):
                tx.publish(shop.issued(order_id=f"o{number}"))
        await eventually(lambda: collected.named("posthouse.send"))
    await shop.app.aclose()
    async with shop.app.running():
        await eventually(lambda: len(collected.named("posthouse.create")) >= 4)
    facts = collected.named("posthouse.create")
    listed = next(s for s in collected.named("posthouse.process") if (s.attributes or {}).get("posthouse.batch.size"))
    assert (listed.parent, (listed.attributes or {})["posthouse.batch.size"]) == (None, 3)
    assert set(linked(listed)) == {place(fact).span_id for fact in facts[:3]}
    assert linked(facts[3]) == [place(listed).span_id], "what it says goes on with the trace of the first of them"


async def test_what_a_read_model_is_rebuilt_from_is_linked_only(shop: Shop, collected: Collected) -> None:
    model = shop.billing.projection("placed", lag_budget=5.0)

    @model.on(shop.placed)
    async def count(event: Event[Any], model: Model) -> None: ...

    async with Harness(shop.orders, shop.billing) as harness:
        await harness.publish(shop.placed(order_id="o1"))
        await harness.settled()
        await app_of(shop.billing).projections.rebuild("placed")
    first, again = [
        span
        for span in collected.named("posthouse.process")
        if "count" in str((span.attributes or {})["posthouse.handler"])
    ]
    placed = collected.named("posthouse.create")[0]
    assert first.parent is not None
    assert (first.parent.span_id, again.parent) == (place(placed).span_id, None)
    assert linked(first) == linked(again) == [place(placed).span_id]


async def test_an_event_that_comes_twice_says_that_it_was_not_run_again(shop: Shop, collected: Collected) -> None:
    async with Harness(shop.orders, shop.billing) as harness:
        await harness.publish(shop.placed(order_id="o1"))
        await harness.settled()
        for stored in list(harness.broker.log.topics["orders.order"]):
            await harness.broker.publish([stored.frame])
        await harness.settled()
    assert collected.tree("posthouse.send")[-1] == "  process issue [not run]"


# Who traces.


async def test_without_an_sdk_nothing_is_traced_and_a_traceparent_is_handed_on(tmp_path: Path) -> None:
    shop = Shop(tmp_path, None)
    await ordered(shop, traceparent=FOREIGN)
    assert shop.app.opened.seam.tracing.spans is None
    assert shop.headers == [(FOREIGN, None)]


async def test_a_provider_that_is_set_when_all_is_open_is_found(
    tmp_path: Path, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, None)
    async with shop.app.running(only=["relay"]):
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", collected.provider)
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.placed(order_id="o1"))
    assert collected.tree("posthouse.send") == ["create order.placed.v1"]


class BrokenProvider(TracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        raise RuntimeError("the collector's settings could not be read: password=hunter2")


async def test_a_provider_that_fails_is_told_of_once_and_events_go_their_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, None, BrokenProvider())
    await ordered(shop)
    figures = await drained(shop.orders, shop.billing)
    assert {(line.consumer, line.applied) for line in figures.lines} == {("orders", 1), ("billing", 1)}
    (told,) = [record.getMessage() for record in caplog.records if record.name == "posthouse.traces"]
    assert "RuntimeError: the collector's settings could not be read" in told
    assert "hunter2" not in told


def test_a_provider_that_failed_is_asked_again_a_minute_later(collected: Collected) -> None:
    clock, asked = ManualClock(), list[float]()

    def find() -> OpenTelemetrySpans | None:
        asked.append(clock.monotonic())
        if len(asked) == 1:
            raise ImportError("No module named 'opentelemetry'")
        return spans_of(collected.provider)

    tracing = Tracing(find, now=clock.monotonic)
    for _ in range(3):
        tracing.look()
    assert len(asked) == 1
    assert tracing.spans is None
    clock.advance(61)
    tracing.look()
    assert tracing.spans is not None


class Undescribed(TraceIdRatioBased):
    def get_description(self) -> str:
        raise NotImplementedError


async def test_a_sampler_that_does_not_describe_itself_is_asked_about_each_span(tmp_path: Path) -> None:
    collected = Collected(Undescribed(1.0))
    await ordered(Shop(tmp_path, collected))
    assert len(collected.named("posthouse.process")) == 2


async def test_a_trace_that_is_not_sampled_is_handed_on_as_such(tmp_path: Path) -> None:
    collected = Collected(ParentBased(ALWAYS_OFF))
    shop = Shop(tmp_path, collected)
    await ordered(shop, correlation=(correlation := new_id()))
    assert collected.spans == []
    [(traceparent, _)] = shop.headers
    assert traceparent is not None
    assert (traceparent[3:35], traceparent[-2:]) == (correlation_to_trace_id(correlation), "00")
    assert [span.trace_flags for span in shop.spans] == [0, 0]


async def test_below_a_request_that_is_not_sampled_a_fact_takes_its_place_along(tmp_path: Path) -> None:
    collected = Collected(ParentBased(ALWAYS_OFF))
    shop = Shop(tmp_path, collected)
    async with shop.app.running():
        with collected.tracer.start_as_current_span("POST /orders") as request:
            for order in ("o1", "o2"):
                async with shop.orders.transaction("t1") as tx:
                    tx.publish(shop.placed(order_id=order))
        await drained(shop.orders, shop.billing)
    here = request.get_span_context()
    assert shop.headers == [(f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}", None)] * 2
    assert {span.span_id for span in shop.spans} == {here.span_id}


async def test_a_sampler_that_does_not_follow_the_parent_is_asked_about_each_span(tmp_path: Path) -> None:
    collected = Collected(ALWAYS_ON)
    shop = Shop(tmp_path, collected)
    await ordered(shop, traceparent=FOREIGN[:-1] + "0")
    assert collected.tree("posthouse.send", "SELECT") == [
        "create order.placed.v1",
        "  process issue",
        "    create invoice.issued.v1",
        "      process note",
    ]


class Curious(ParentBased):
    """Has the description of what it is derived from, and records below what nobody sampled."""

    def should_sample(self, *about: Any, **more: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*about, **more)


class Whimsical(TraceIdRatioBased):
    """Likewise: a share of none, it says, and takes all."""

    def should_sample(self, *about: Any, **more: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*about, **more)


@pytest.mark.parametrize(
    ("sampler", "traceparent"), [(Curious(ALWAYS_OFF), FOREIGN[:-1] + "0"), (ParentBased(Whimsical(0.0)), None)]
)
async def test_a_sampler_that_is_derived_from_a_known_one_is_asked_as_it_may_decide_otherwise(
    tmp_path: Path, sampler: ParentBased, traceparent: str | None
) -> None:
    collected = Collected(sampler)
    shop = Shop(tmp_path, collected)
    await ordered(shop, **({} if traceparent is None else {"traceparent": traceparent}))
    assert collected.tree("posthouse.send", "SELECT") == [
        "create order.placed.v1",
        "  process issue",
        "    create invoice.issued.v1",
        "      process note",
    ]


@pytest.mark.parametrize("correlation", [None, new_id(), "01HYZ3N6Q4M8W2V5T7R9S1P3K5", "order 17"])
async def test_a_trace_that_begins_and_is_not_sampled_is_followed_by_what_lies_below(
    tmp_path: Path, correlation: str | None
) -> None:
    collected = Collected(ParentBased(TraceIdRatioBased(0.0)))
    shop = Shop(tmp_path, collected)
    await ordered(shop, **({} if correlation is None else {"correlation": correlation}))
    assert collected.spans == [], "neither ours nor those of a handler"
    [(traceparent, tracestate)] = shop.headers
    assert traceparent is not None
    assert is_traceparent(traceparent)
    assert (int(traceparent[-2:], 16) & 1, tracestate) == (0, None)
    if correlation is not None and (id := correlation_to_trace_id(correlation)) is not None:
        assert traceparent[3:35] == id
    assert {f"{span.trace_id:032x}" for span in shop.spans} == {traceparent[3:35]}, "also of what a handler said"


async def test_a_place_that_is_not_sampled_is_carried_with_its_tracestate(tmp_path: Path) -> None:
    collected = Collected(ParentBased(ALWAYS_ON))
    shop = Shop(tmp_path, collected)
    ids = (int(FOREIGN[3:35], 16), int(FOREIGN[36:52], 16))
    here = trace.SpanContext(*ids, is_remote=True, trace_state=trace.TraceState([("shop", "1")]))
    with trace.use_span(trace.NonRecordingSpan(here)):
        await ordered(shop)
    assert shop.headers == [(FOREIGN[:-1] + "0", "shop=1")]
    assert shop.spans == [here] * 2, "also of what a handler said"
    assert collected.tree("posthouse.send") == []


async def test_a_share_is_taken_of_batches_and_of_events_that_are_processed_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "LATE", -1.0)
    collected = Collected(ParentBased(TraceIdRatioBased(0.5)))
    shop = Shop(tmp_path, collected)
    async with shop.app.running():
        for number in range(100):
            async with shop.orders.transaction("t1", traceparent=FOREIGN) as tx:
                tx.publish(shop.noted(order_id=f"o{number}"))
        await drained(shop.orders, shop.billing)
    processed = collected.named("posthouse.process")
    assert 20 < len(processed) < 80
    assert {span.parent for span in processed} == {None}
    assert {FOREIGN[3:35]} == {f"{link.context.trace_id:032x}" for span in processed for link in span.links}
    assert {place(span).trace_flags for span in processed} == {3}, "sampled, and its id was drawn"
    calls = [span for span in collected.spans if span.name == "GET"]
    assert len(calls) == len(processed), "what a handler calls is recorded with it, and never without"


async def test_the_sampler_decides_about_a_trace_that_begins_from_a_correlation(tmp_path: Path) -> None:
    collected = Collected(ParentBased(TraceIdRatioBased(0.5)))
    shop = Shop(tmp_path, collected)
    async with shop.app.running(only=["relay"]):
        for number in range(200):
            async with shop.orders.transaction("t1") as tx:
                tx.publish(shop.placed(order_id=f"o{number}"))
    assert 50 < len(collected.named("posthouse.create")) < 150


async def test_otels_own_names_are_added_for_who_asks_for_them(
    tmp_path: Path, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, messaging")
    await ordered(Shop(tmp_path, collected))
    created, processed = collected.named("posthouse.create")[0], collected.named("posthouse.process")[0]
    theirs = {name: value for name, value in (processed.attributes or {}).items() if name.startswith("messaging.")}
    assert theirs == {
        "messaging.system": "posthouse",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "orders.order",
        "messaging.message.id": (created.attributes or {})["posthouse.event.id"],
        "messaging.message.conversation_id": (created.attributes or {})["posthouse.correlation"],
        "messaging.consumer.group.name": "billing",
    }


# Whatever tracing does, events go their way.


class Broken(SpanProcessor):
    def on_start(self, span: Span, parent_context: object = None) -> None:
        raise RuntimeError("no place to go")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no place to go")


class BrokenSampler(TraceIdRatioBased):
    def should_sample(self, *_: object, **__: object) -> SamplingResult:
        raise RuntimeError("no opinion")


def broken_processor() -> TracerProvider:
    provider = Collected().provider
    provider.add_span_processor(Broken())
    return provider


@pytest.mark.parametrize("broken", [broken_processor, lambda: Collected(BrokenSampler(1.0)).provider])
async def test_a_processor_or_a_sampler_that_raises_is_told_of_once_and_events_go_their_way(
    tmp_path: Path, broken: Callable[[], TracerProvider], caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, None, broken())
    with caplog.at_level(logging.ERROR):
        await ordered(shop)
        figures = await drained(shop.orders, shop.billing)
    assert {(line.consumer, line.applied) for line in figures.lines} == {("orders", 1), ("billing", 1)}
    assert [record.getMessage()[:14] for record in caplog.records if record.name == "posthouse.traces"] == [
        "tracing fails,"
    ]


# What is nobody's business.

PHONE = "+49 170 5550002"


async def test_words_of_an_error_name_no_person_wherever_they_are_shown_or_kept(
    tmp_path: Path, collected: Collected
) -> None:
    shop = Service("shop")
    failures: list[Failure] = []

    @shop.event("guest.came.v1", key="order")
    class Came(Payload):
        order: str
        phone: Annotated[str, Personal("contact")]

    @shop.on(Came, consumer="alone", policy=Policy(max_attempts=2, first_delay=0.01))
    async def alone(event: Event[Came], tx: Tx) -> None:
        raise LookupError(f"no box -1 for {event.data.phone}")

    @shop.on(Came, consumer="grouped", policy=Policy(grouped=True, max_attempts=1))
    async def grouped(event: Event[Came], tx: Tx) -> None:
        raise Reject(f"no group for {event.data.phone}")

    @shop.on(Came, consumer="several", policy=Policy(max_attempts=1))
    async def several(events: list[Event[Came]], tx: Tx) -> None:
        raise Reject(f"no list for {events[0].data.phone}")

    app = App(
        shop,
        store=f"sqlite:///{tmp_path}/shop.db",
        broker="memory:",
        tracer_provider=collected.provider,
        on_failure=failures.append,
    )
    async with app.running():
        async with shop.transaction("t1") as tx:
            for number in range(3):
                tx.publish(Came(order=f"o{number}", phone=PHONE))
        await eventually(lambda: len([one for one in failures if one.dead]) == 9, "nine are given up")
        held = await app.store.held.find(HeldFilter())
    with contextlib.suppress(KeyError):
        async with shop.transaction("t1") as tx:
            tx.publish(Came(order="o9", phone=PHONE))
            raise KeyError(PHONE)
    await app.aclose()
    spans = "".join(span.to_json() for span in collected.spans).encode().decode("unicode_escape")
    kept = f"{[(one.reason, one.error, one.stack) for one in held]}"
    told = f"{[(one.reason, one.message, one.fields) for one in failures]}"
    for text in (spans, kept, told):
        assert "5550002" not in text
    assert "KeyError: '…'" in spans
    for text in (spans, kept, told):
        assert "no box -1 for …" in text
        assert "no group for …" in text
        assert "no list for …" in text
