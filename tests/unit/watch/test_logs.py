"""Log lines: they say whose they are, show nothing secret or personal, and never break or hold up what logs them."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import logging.config
import logging.handlers
import queue
import re
import subprocess
import sys
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel

from posthouse import (
    App,
    Event,
    Payload,
    Personal,
    Policy,
    Reject,
    Saga,
    Service,
    Turn,
    Tx,
    starts,
)
from posthouse.errors import ConfigurationError, ContractError
from posthouse.seam import Current, during
from posthouse.testing import Harness
from posthouse.watch.lines import Lines
from posthouse.watch.logs import Context, JsonLines, PlainLines, Repeats, configure
from tests.kit.waiting import eventually

EMAIL = "ada.lovelace@example.com"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Paper:
    """A logger of its own, and what it wrote."""

    def __init__(self, formatter: logging.Formatter, *filters: logging.Filter) -> None:
        self._stream = io.StringIO()
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(formatter)
        for one in filters:
            handler.addFilter(one)
        self.log = logging.Logger("shop.app")
        self.log.addHandler(handler)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def record_of(**fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "shop", "levelname": "INFO", "levelno": 20, **fields})


# What a line is.


def test_a_line_is_one_object_with_time_level_and_event() -> None:
    record = logging.makeLogRecord(
        {
            "name": "posthouse.relay",
            "levelno": 30,
            "levelname": "WARNING",
            "msg": "waits\n%d s",
            "args": (3,),
            "created": 0.0,
        }
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000000Z",
        "level": "warning",
        "logger": "posthouse.relay",
        "event": "waits\n3 s",
    }


def test_extra_fields_exceptions_and_stacks_are_kept() -> None:
    paper = Paper(JsonLines())
    try:
        raise ValueError("no")
    except ValueError:
        paper.log.exception("failed", extra={"tenant": "t1", "where": object, "count": 3}, stack_info=True)
    (entry,) = paper.lines
    assert (entry["tenant"], entry["where"], entry["count"]) == ("t1", "<class 'object'>", 3)
    assert "ValueError: no" in entry["exception"]
    assert "test_extra_fields" in entry["stack"]


def test_an_extra_that_is_called_like_one_of_ours_hides_nothing() -> None:
    paper = Paper(JsonLines())
    paper.log.info("what happened", extra={"event": "mine", "level": 3})
    (entry,) = paper.lines
    assert (entry["event"], entry["event_"], entry["level"], entry["level_"]) == ("what happened", "mine", "info", 3)


# Whose it is.


def test_a_line_in_a_request_says_its_correlation_and_trace() -> None:
    paper = Paper(JsonLines())
    with during(Current(correlation="r1", outer_correlation="x", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")):
        paper.log.info("hello")
    (entry,) = paper.lines
    assert (entry["correlation"], entry["outer_correlation"], entry["trace_id"]) == ("r1", "x", TRACE)
    assert "span_id" not in entry  # that one is the caller's


def test_a_span_that_is_current_wins() -> None:
    paper, tracer = Paper(JsonLines()), TracerProvider().get_tracer("test")
    request = Current(correlation="r1", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
    with during(request), tracer.start_as_current_span("x") as span:
        paper.log.info("hello")
    (entry,) = paper.lines
    assert entry["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert entry["span_id"] == f"{span.get_span_context().span_id:016x}"


def test_a_plain_line_has_the_correlation_at_its_end() -> None:
    paper = Paper(PlainLines())
    with during(Current(correlation="r1")):
        paper.log.warning("hello")
    assert paper.text.endswith("WARNING  shop.app: hello [r1]\n")
    paper.log.warning("nobody's")
    assert paper.text.endswith("nobody's\n")


def test_what_the_caller_passes_wins() -> None:
    paper = Paper(JsonLines())
    with during(Current(correlation="r1", tenant="t1")):
        paper.log.info("hello", extra={"tenant": "t2", "correlation": "r2"})
    assert (paper.lines[0]["tenant"], paper.lines[0]["correlation"]) == ("t2", "r2")


def test_behind_a_queue_a_line_still_knows_its_request() -> None:
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = logging.handlers.QueueHandler(waiting)
    handler.addFilter(Context())
    log = logging.Logger("shop.app")
    log.addHandler(handler)
    with during(Current(correlation="r1")):
        log.info("hello")
    assert json.loads(JsonLines().format(waiting.get_nowait()))["correlation"] == "r1"


class Placed(Payload):
    order: str


def shop_with_everything(log: logging.Logger) -> Service:
    """A handler, one in a thread that begins with a failure, one that fails for good, a saga and a read model."""
    shop = Service("shop")
    shop.event("order.placed.v1", key="order")(Placed)
    vendor = logging.getLogger("vendor.http")

    @shop.on(Placed, consumer="pack")
    async def pack(event: Event[Placed], tx: Tx) -> None:
        log.info("packing")
        vendor.info("calling the vendor")
        await asyncio.create_task(below())

    async def below() -> None:
        log.info("in a task below")

    failed: list[str] = []

    @shop.on(Placed, consumer="flaky", policy=Policy(first_delay=0.01, last_delay=0.01))
    def flaky(event: Event[Placed]) -> None:
        log.info("in a thread")
        if not failed:
            failed.append(event.id)
            raise ConnectionError("not now")

    @shop.on(Placed, consumer="dead")
    async def dead(event: Event[Placed]) -> None:
        log.info("about to fail for good")
        raise Reject("never")

    @shop.saga("packing", correlate="order")
    class Packing(Saga):
        order: str

        @starts(Placed)
        async def begin(self, event: Event[Placed], turn: Turn) -> None:
            log.info("a saga's turn")

    model = shop.projection("orders")

    @model.setup
    async def tables(model: Any) -> None:
        await model.execute(f"CREATE TABLE {model.table('orders')} (id TEXT)")

    @model.on(Placed)
    async def show(event: Event[Placed], model: Any) -> None:
        log.info("a read model's")

    return shop


async def test_every_line_of_a_run_that_is_about_an_event_says_which(tmp_path: Path) -> None:
    """Of our loggers, the application's and others'; in tasks, threads, retries, for dead letters, sagas and read models."""
    stream = io.StringIO()
    before = logging.getLogger().handlers[:], logging.getLogger().level
    configure(level="info", stream=stream)
    try:
        shop = shop_with_everything(logging.getLogger("shop.app"))
        url = f"sqlite:///{tmp_path / 'shop.db'}"
        async with App(shop, store=url, broker=f"embedded:///{tmp_path / 'log.db'}").running():
            for number in range(3):
                with during(Current(correlation=f"r{number}")):
                    async with shop.transaction("t1") as tx:
                        tx.publish(Placed(order=f"o{number}"))
                        logging.getLogger("shop.app").info("placed")
            await eventually(lambda: stream.getvalue().count("in a thread") >= 4, within=20)
            await eventually(lambda: stream.getvalue().count("a read model's") >= 3, within=20)
            await eventually(lambda: stream.getvalue().count("a saga's turn") >= 3, within=20)
            await eventually(lambda: stream.getvalue().count('"outcome":"dead"') >= 3, within=20)
            await eventually(lambda: stream.getvalue().count("in a task below") >= 3, within=20)
        logging.getLogger().handlers[0].flush()
    finally:
        logging.getLogger().handlers[0].close()
        logging.getLogger().handlers, logging.getLogger().level = before[0], before[1]
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    about_nobody = [line for line in lines if "correlation" not in line]
    ids = {line["event_id"] for line in lines if "event_id" in line}
    about_the_process = {"posthouse.app", "posthouse.runtime", "posthouse.sagas"}
    assert {line["logger"] for line in about_nobody} <= about_the_process, about_nobody
    assert not [line for line in about_nobody if any(one in line["event"] for one in (*ids, "shop.order.placed"))]
    mine = [line for line in lines if line["logger"] in ("shop.app", "vendor.http", "posthouse.failures")]
    assert {line["correlation"] for line in mine} == {"r0", "r1", "r2"}
    handled = [line for line in mine if line["event"] != "placed"]
    for line in handled:
        number = line["correlation"][1:]
        assert (line["event_type"], line["tenant"], line["key"]) == ("shop.order.placed.v1", "t1", f"o{number}"), line
        assert line["event_id"]
        assert line["consumer"].startswith("shop.")
        assert line["attempt"] >= 1
    assert {line["attempt"] for line in handled if line["event"] == "in a thread"} == {1, 2}
    consumers = {line["consumer"] for line in handled}
    assert consumers == {"shop.pack", "shop.flaky", "shop.dead", "shop.packing", "shop.orders"}


# What may not be shown.


@dataclasses.dataclass
class Address:
    street: Annotated[str, Personal("contact")]
    city: str


class Model(BaseModel):
    order: str
    email: Annotated[str, Personal("contact")]
    address: Address


@dataclasses.dataclass(frozen=True)
class Record:
    order: str
    email: Annotated[str, Personal("contact")]
    address: Address


class Struct(msgspec.Struct):
    order: str
    email: Annotated[str, Personal("contact")]
    address: Address


class Ours(Payload):
    order: str
    email: Annotated[str, Personal("contact")]
    address: Address


KINDS = pytest.mark.parametrize("kind", [Model, Record, Struct, Ours])


@pytest.fixture
def declared() -> Service:
    shop = Service("shop")
    for number, kind in enumerate([Model, Record, Struct, Ours], 1):
        shop.event(f"guest{number}.came.v1", key="order")(kind)
    return shop


def guest(kind: Any) -> Any:
    return kind(order="o1", email=EMAIL, address=Address(street="12 St James's Square", city="London"))


@KINDS
def test_texts_of_a_payload_hide_what_is_personal(kind: Any, declared: Service) -> None:
    payload = guest(kind)
    event: Event[Any] = Event(id="e1", type="t", source="s", time="", data=payload)
    for text in (repr(payload), str(payload), f"{payload}", f"{[payload]}", repr(event), str(event)):
        assert EMAIL not in text
        assert "James" not in text
        assert "o1" in text
        assert "London" in text
    assert payload.email == EMAIL  # it is only not shown


def test_raw_data_of_an_event_is_not_shown() -> None:
    event: Event[bytes] = Event(id="e1", type="t", source="s", time="", data=EMAIL.encode())
    assert EMAIL not in repr(event)
    assert "data=<24 bytes>" in repr(event)


@KINDS
@pytest.mark.parametrize("formatter", [JsonLines(), PlainLines()])
def test_a_line_hides_what_the_event_in_hand_says_about_a_person(
    kind: Any, declared: Service, formatter: logging.Formatter
) -> None:
    payload, paper = guest(kind), Paper(formatter)
    event: Event[Any] = Event(id="e1", type="t", source="s", time="", data=payload)
    raw: Event[Any] = event.with_data(
        b'{"order":"o1","email":"%s","address":{"street":"12 St James\'s Square","city":"London"}}' % EMAIL.encode()
    )
    for one in (event, raw):
        with during(Current(correlation="r1", event=one, payload=kind)):
            paper.log.info(
                "sent a mail to %s at %s",
                payload.email,
                payload.address.street,
                extra={"event": event, "to": [EMAIL.upper()]},
            )
            try:
                raise KeyError(payload.email, payload)
            except KeyError:
                paper.log.exception("no account")
    assert "ada.lovelace" not in paper.text.lower()
    assert "James" not in paper.text
    assert "London" in paper.text


def test_a_failure_line_hides_it_too_and_so_does_one_of_data_that_does_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Service("shop")

    class Guest(BaseModel):
        order: str
        email: Annotated[str, Personal("contact")]
        age: int

    shop.event("guest.came.v1", key="order")(Guest)
    lines: list[str] = []

    class Write(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend((JsonLines().format(record), PlainLines().format(record)))

    @shop.on(Guest)
    async def fail(event: Event[Guest]) -> None:
        raise LookupError(f"nobody has the address {event.data.email}")

    async def run() -> None:
        async with Harness(shop) as harness:
            await harness.publish(Guest(order="o1", email=EMAIL, age=36))
            await harness.settled()

    handler = Write()
    logging.getLogger("posthouse").addHandler(handler)
    try:
        asyncio.run(run())
    finally:
        logging.getLogger("posthouse").removeHandler(handler)
    told = [line for line in lines if "nobody has the address" in line]
    assert len(told) == 2
    assert not [line for line in lines if EMAIL in line]
    with pytest.raises(ValueError, match="input_type") as refused:
        Guest.model_validate({"order": "o1", "email": {"was": EMAIL}, "age": 1})
    assert "ada" in str(refused.value)
    paper = Paper(JsonLines())
    paper.log.error("refused", exc_info=refused.value)
    assert "ada" not in paper.text
    assert "input_value=…" in paper.text


def test_what_publishing_refuses_quotes_nothing_personal() -> None:
    shop = Service("shop")

    class Guest(Payload):
        order: str
        email: Annotated[str, Personal("contact")]
        room: Annotated[Any, Personal("stay")] = None

    shop.event("guest.came.v1", key="order")(Guest)

    async def run() -> None:
        async with Harness(shop), shop.transaction("t1") as tx:
            tx.publish(Guest(order="o1", email=EMAIL, room=date(1815, 12, 10)))

    with pytest.raises(ContractError, match=r"`\$.room` is personal and not shown") as refused:
        asyncio.run(run())
    assert "1815" not in str(refused.value)


class Patient(Payload):
    id: str
    name: Annotated[str, Personal("identity")]
    email: Annotated[str, Personal("contact")]
    number: Annotated[int, Personal("identity")]
    income: Annotated[float, Personal("identity")]
    born: Annotated[datetime, Personal("health")]
    day: Annotated[date, Personal("health")]
    photo: Annotated[bytes, Personal("health")]
    owed: dict[Annotated[str, Personal("contact")], float]
    home: Annotated[Address | None, Personal("contact")] = None


def patient() -> Event[object]:
    data = Patient(
        id="p1",
        name="Bj\u00f6rn \u00c5kesson",
        email="bjorn@example.com",
        number=198005121234,
        income=51234.5,
        born=datetime(1980, 5, 12, 4, 30, tzinfo=UTC),
        day=date(1981, 6, 13),
        photo=b"Ada HIV+",
        owed={"grace@example.com": 77.25},
        home=Address(street="12 Square", city="London"),
    )
    return Event(id="e1", type="t", source="s", time="", data=data)


def test_whatever_way_code_writes_a_personal_value_it_is_hidden() -> None:
    event, paper = patient(), Paper(JsonLines())
    data: Any = event.data
    with during(Current(event=event, payload=Patient)):
        paper.log.info("x", extra={"number": data.number, "income": data.income, "born": data.born, "day": [data.day]})
        paper.log.info("%s %r %s %r", data.born, data.born, data.day, data.day)
        paper.log.info("%s %s", data.born.isoformat(), data.born.date())
        paper.log.info(json.dumps({"name": data.name, "email": data.email}))
        paper.log.info("GET /?%s", urlencode({"name": data.name, "email": data.email}))
        paper.log.info("GET /%s", quote(f"to {data.email} and {data.name}"))
        paper.log.info("%r %r", data.name.encode(), data.photo)
        paper.log.info("%.2f %s %s", data.income, f"{data.number:,}", next(iter(data.owed)))
        paper.log.info("user_%s %s_invoice.pdf %r", data.email, data.name, f"line\n{data.name}")
        paper.log.info("in the street of the city", extra={"count": 3})
    for shown in (
        "1980",
        "1981",
        "51234",
        "51,234",
        "5121234",
        "121,234",
        "bj",
        "kesson",
        "example.com",
        "ada",
        "77.25",
    ):
        assert shown not in re.sub(r'"time":"[^"]*"', "", paper.text.lower()), shown
    assert paper.lines[-1]["event"] == "in the street of the city"  # names of fields are no data
    assert paper.lines[-1]["count"] == 3


def test_an_extra_that_is_called_as_a_secret_is_not_shown() -> None:
    paper = Paper(JsonLines())
    secrets = ("password", "db_password", "api_key", "token", "Authorization", "client_secret")
    paper.log.info("x", extra={**dict.fromkeys(secrets, "hunter2"), "tokens": 12, "key": "o1"})
    assert "hunter2" not in paper.text
    assert (paper.lines[0]["tokens"], paper.lines[0]["key"]) == (12, "o1")


class Party(Payload):
    id: str
    guests: Annotated[list[str], Personal("identity")]


def test_an_event_with_very_many_personal_values_costs_little_and_shows_ids_and_names() -> None:
    guests = [f"g{number}x" for number in range(20_000)]
    event: Event[object] = Event(id="e1", type="t", source="s", time="", data=Party(id="p1", guests=guests))
    paper = Paper(JsonLines())
    with during(Current(correlation="r1", event=event, payload=Party)):
        before = time.process_time()
        for _ in range(5):
            paper.log.info("invited %s", " ".join(guests)[:50_000], extra={"who": guests[7], "count": 3})
        assert time.process_time() - before < 3  # seconds each, once
    line = paper.lines[0]
    assert (line["logger"], line["correlation"], line["event_id"], line["count"]) == ("shop.app", "r1", "e1", 3)
    assert "g7x" not in paper.text
    assert line["event"].startswith("\u2026")


def test_a_text_with_more_to_look_for_than_is_reasonable_is_hidden_whole() -> None:
    event: Event[object] = Event(id="e1", type="t", source="s", time="", data=Party(id="p1", guests=["aa"]))
    paper = Paper(JsonLines())
    with during(Current(event=event, payload=Party)):
        paper.log.info("a" * 60_000)
    assert paper.lines[0]["event"].startswith("\u2026")


@pytest.mark.parametrize("pad", range(0, 40, 3))
def test_a_long_traceback_is_masked_before_it_is_cut(pad: int) -> None:
    paper = Paper(JsonLines())
    for many in (1_500, 15_000):
        paper.log.error("x", exc_info=ValueError("x" * pad + " postgresql://shop:hunter2@db/shop" * many))
    assert "hunter2" not in paper.text
    assert "db/shop" in paper.text


# What must not break it.


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def endless() -> list[object]:
    found: list[object] = []
    deep = found
    for _ in range(100_000):
        inner: list[object] = []
        deep.append(inner)
        deep = inner
    return found


@pytest.mark.parametrize("formatter", [JsonLines(), PlainLines()])
@pytest.mark.parametrize(
    "value",
    [
        b"\xff\x00bytes",
        "half \ud800 a pair",
        "nul \x00",
        Unspeakable(),
        endless(),
        "x" * 5_000_000,
        10**5000,
        2**64,
        float("nan"),
        {1: object()},
    ],
    ids=["bytes", "surrogate", "nul", "repr raises", "recursion", "giant", "huge int", "int", "nan", "dict"],
)
def test_whatever_is_logged_a_line_comes_out(value: object, formatter: logging.Formatter) -> None:
    paper = Paper(formatter)
    paper.log.info("it is %s", value)
    paper.log.info("it is", extra={"value": value, **{f"f{number}": value for number in range(100)}})
    paper.log.error("it is", exc_info=ValueError(value))
    paper.log.info(value)
    assert 4 <= len(paper.text.encode()) < 1_000_000
    if isinstance(formatter, JsonLines):
        assert len(paper.lines) == 4
        assert paper.lines[1]["fields_left_out"] == 37


def test_arguments_that_do_not_fit_are_told_and_break_nothing() -> None:
    paper = Paper(JsonLines())
    paper.log.info("%d of %d", "x")
    assert paper.lines[0]["event"] == "%d of %d (its arguments do not fit)"


def test_nothing_inside_of_a_message_or_an_error_can_look_like_another_line() -> None:
    paper = Paper(PlainLines())
    forged = "x\n2026-11-16 10:00:00,000 INFO     posthouse.run: all is well\r\x1b[2K\u2028"
    with during(Current(correlation=forged)):
        paper.log.info("order %s", forged)
        paper.log.error("failed", exc_info=ValueError(forged))
    lines = paper.text.split("\n")
    assert [line for line in lines if line.startswith("2026-11-16 10")] == []
    assert "\r" not in paper.text
    assert "\x1b" not in paper.text
    assert sum(not line.startswith("    ") for line in lines if line) == 2


# Repeats.


def repeated(most: int = 3) -> tuple[Paper, Repeats]:
    repeats = Repeats("shop", most, tell=lambda record: paper.log.handle(record))
    paper = Paper(JsonLines(), repeats)
    return paper, repeats


def test_the_same_line_again_and_again_is_one_line_with_a_count() -> None:
    paper, repeats = repeated()
    for number in range(10):
        paper.log.warning("number %d is late", number)
    paper.log.warning("another")
    assert [line["event"] for line in paper.lines] == [
        "number 0 is late",
        "number 1 is late",
        "number 2 is late",
        "another",
    ]
    repeats.finish()
    assert paper.lines[-1]["event"] == "7 lines like this were left out in 1 s: number %d is late"
    assert (paper.lines[-1]["repeats"], paper.lines[-1]["level"]) == (7, "warning")
    paper.log.warning("number %d is late", 11)
    assert paper.lines[-1]["event"] == "number 11 is late"


def test_the_count_comes_by_itself_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.watch.repeats.MINUTE", 0.2)
    paper, _ = repeated()
    for number in range(10):
        paper.log.warning("number %d is late", number)
    deadline = time.monotonic() + 5
    while "left out" not in paper.text and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert paper.lines[-1]["repeats"] == 7


def test_lines_about_different_handlers_and_errors_are_counted_apart_and_dead_events_never() -> None:
    paper, _ = repeated(most=1)
    for _ in range(3):
        for error in ("KeyError", "ValueError"):
            paper.log.warning(
                "%s", "x", extra={"consumer": "shop", "handler": "f", "error_type": error, "outcome": "retry"}
            )
        for outcome in ("dead", "quarantined"):
            paper.log.error("%s", "x", extra={"consumer": "shop", "handler": "f", "outcome": outcome})
    assert [line["outcome"] for line in paper.lines].count("retry") == 2
    assert [line["outcome"] for line in paper.lines].count("dead") == 3
    assert [line["outcome"] for line in paper.lines].count("quarantined") == 3


def test_lines_of_other_loggers_are_left_alone_unless_it_is_said() -> None:
    paper = Paper(JsonLines(), Repeats("posthouse", 1))
    for _ in range(5):
        paper.log.info("mine")
    assert len(paper.lines) == 5


def test_one_decision_holds_for_all_handlers() -> None:
    repeats = Repeats("shop", 3)
    papers = [io.StringIO(), io.StringIO()]
    log = logging.Logger("shop")
    for paper in papers:
        handler = logging.StreamHandler(paper)
        handler.addFilter(repeats)
        log.addHandler(handler)
    for _ in range(5):
        log.info("again")
    assert [len(paper.getvalue().splitlines()) for paper in papers] == [3, 3]


def test_different_lines_without_end_take_no_memory_without_end() -> None:
    paper, repeats = repeated(most=1)
    for number in range(5_000):
        paper.log.info(f"line {number}")  # as people do
    assert len(repeats._seen) <= 2_000
    assert len(paper.lines) == 5_000


# Nobody waits for the log.


def test_a_reader_who_stands_still_holds_up_nobody_and_is_told_what_he_missed() -> None:
    go, written = threading.Event(), io.StringIO()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            go.wait(20)
            return written.write(text)

    handler = Lines(Stuck(), most=10)
    handler.setFormatter(JsonLines())
    log = logging.Logger("shop")
    log.addHandler(handler)
    before = time.monotonic()
    for number in range(1_000):
        log.info("line %d", number)
    assert time.monotonic() - before < 5
    go.set()
    handler.flush()
    handler.close()
    lines = [json.loads(line)["event"] for line in written.getvalue().splitlines()]
    assert any("does not keep up" in line for line in lines)
    missed = sum(int(line.split(": ")[1].split(" ")[0]) for line in lines if "does not keep up" in line)
    assert missed + sum(line.startswith("line ") for line in lines) == 1_000


def test_a_secret_that_is_cut_where_a_long_text_ends_to_be_read_is_hidden_too() -> None:
    secret, before = "s3cr3t" * 1_000, "it failed " * 200
    line = JsonLines().format(record_of(msg=f"{before} password={'x' * 60_000} postgres://shop:{secret}@db/shop"))
    assert "it failed" in line
    assert "s3cr3t" not in line


def test_a_stream_that_is_closed_breaks_nothing() -> None:
    stream = io.StringIO()
    handler = Lines(stream)
    log = logging.Logger("shop")
    log.addHandler(handler)
    stream.close()
    log.info("hello")
    handler.flush()
    handler.close()


def test_a_process_that_ends_has_written_everything_and_its_counts() -> None:
    code = """
import logging
from posthouse.watch.logs import configure
configure(repeats=2)
for number in range(10):
    logging.getLogger("posthouse.relay").warning("waits %d", number)
logging.getLogger("shop").info("last words")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    events = [json.loads(line)["event"] for line in run.stderr.splitlines()]
    assert events == ["waits 0", "waits 1", "last words", "8 lines like this were left out in 1 s: waits %d"]


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_has_a_writer_of_its_own(tmp_path: Path) -> None:
    code = f"""
import logging, os
from posthouse.watch.logs import configure
configure(stream=open({str(tmp_path / "log")!r}, "a"))
logging.info("parent")
child = os.fork()
if child == 0:
    logging.info("child")
    logging.shutdown()
    os._exit(0)
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(events) == ["child", "parent"]


def test_a_signal_handler_and_a_finaliser_may_log_in_the_midst_of_a_line() -> None:
    """Wherever in our code it comes: the trace function logs once at each line of it."""
    code = """
import logging, sys, threading
from posthouse.watch import lines, repeats
from posthouse.watch.logs import configure
configure(repeats=5)
log, ours, done = logging.getLogger("posthouse.relay"), (lines.__file__, repeats.__file__), set()
def step(frame, event, arg):
    place = (frame.f_code.co_filename, frame.f_lineno)
    if place[0] not in ours:
        return None
    if event == "line" and place not in done:
        done.add(place)
        log.info("signal %s", place[1], extra={"handler": str(place)})
    return step
threading.settrace(step)
sys.settrace(step)
for number in range(20):
    log.info("line %d", number)
sys.settrace(None)
log.info("%d", len(done))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    events = [json.loads(line)["event"] for line in run.stderr.splitlines()]
    shown = [event for event in events if event.startswith("line ")]
    assert shown[:5] == [f"line {number}" for number in range(5)]
    assert len(shown) < 10  # one that could not be counted, because another thread logs inside of the count, is shown
    signals = [event for event in events if event.startswith("signal ")]
    assert len(signals) > 25
    assert any(f"{20 - len(shown)} lines like this" in event for event in events)


def test_a_line_of_a_multiprocessing_child_is_written(tmp_path: Path) -> None:
    code = f"""
import logging, multiprocessing
from posthouse.watch.logs import configure
def child(number):
    logging.info("child %d", number)
if __name__ == "__main__":
    configure(stream=open({str(tmp_path / "log")!r}, "a"))
    for number in range(5):
        process = multiprocessing.get_context("fork").Process(target=child, args=(number,))
        process.start()
        process.join()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events == [f"child {number}" for number in range(5)]


def test_a_fork_while_another_thread_counts_repeats_leaves_no_lock_behind() -> None:
    code = """
import logging, os, signal, threading
from posthouse.watch.logs import configure
configure(repeats=1)
log = logging.getLogger("posthouse.relay")
log.info("x")
log.info("x")
repeats = logging.getLogger().handlers[0].filters[0]
held, go = threading.Event(), threading.Event()
def hold():
    with repeats._lock:
        held.set()
        go.wait(20)
threading.Thread(target=hold).start()
held.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(5)
    log.info("x")
    logging.shutdown()
    os._exit(0)
print(os.waitpid(child, 0)[1])
go.set()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert run.stdout == "0\n"
    events = [json.loads(line)["event"] for line in run.stderr.splitlines()]
    assert sorted(events) == ["1 lines like this were left out in 1 s: x", "x", "x"]  # one of each process


def test_a_character_that_the_stream_does_not_have_loses_no_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="latin-1") as stream:
        handler = Lines(stream)
        log = logging.Logger("shop")
        log.addHandler(handler)
        for number in range(10):
            log.info("line %d \u2713", number)
        handler.flush()
        handler.close()
    assert (tmp_path / "log").read_text().splitlines() == [f"line {number} \\u2713" for number in range(10)]


def test_lines_that_a_stream_refused_are_told_when_it_takes_some_again() -> None:
    class Full(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise BlockingIOError
            return super().write(text)

    handler, log = Lines(stream := Full()), logging.Logger("shop")
    log.addHandler(handler)
    log.info("lost")
    handler.flush()
    stream.full = False
    log.info("written")
    handler.flush()
    handler.close()
    assert stream.getvalue().splitlines() == [
        "written",
        "whoever reads the log does not keep up: 1 lines were left out",
    ]


def test_nobody_waits_while_another_s_line_is_put_into_words() -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow:
        def __str__(self) -> str:
            begun.set()
            go.wait(20)
            return "slow"

    handler, log = Lines(stream := io.StringIO()), logging.Logger("shop")
    log.addHandler(handler)
    thread = threading.Thread(target=log.info, args=(Slow(),))
    thread.start()
    begun.wait(20)
    other = threading.Thread(target=log.info, args=("quick",))
    other.start()
    other.join(5)
    assert not other.is_alive()
    go.set()
    thread.join()
    handler.flush()
    handler.close()
    assert stream.getvalue() == "quick\nslow\n"


class Panic(BaseException):
    """As extensions raise them."""


class Array:
    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("its truth is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class Mute:
    def __str__(self) -> str:
        raise Panic


@pytest.mark.parametrize("formatter", [JsonLines(), PlainLines()])
def test_nothing_that_is_logged_raises_out_of_a_filter_or_as_a_panic(formatter: logging.Formatter) -> None:
    paper = Paper(formatter, Repeats("", 10), Context())
    paper.log.info("x", extra={"outcome": Array()})
    paper.log.info("x", extra={"handler": Mute()})
    paper.log.info("x %s", Mute())
    paper.log.info(Mute())
    assert len(paper.text.splitlines()) == 4


def test_repeats_of_one_consumer_hide_nothing_of_another() -> None:
    paper, _ = repeated(most=1)
    for consumer in ("a", "a", "b"):
        with during(Current(consumer=consumer)):
            paper.log.warning("late")
    assert [line["consumer"] for line in paper.lines] == ["a", "b"]


def test_it_is_set_up_by_a_dictionary_as_well() -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": "posthouse.watch.logs.JsonLines"}},
            "filters": {
                "repeats": {"()": "posthouse.watch.logs.Repeats", "most": 10},
                "context": {"()": "posthouse.watch.logs.Context"},
            },
            "handlers": {
                "stderr": {
                    "class": "posthouse.watch.logs.Lines",
                    "formatter": "json",
                    "filters": ["repeats", "context"],
                    "stream": "ext://sys.stderr",
                }
            },
            "loggers": {"try.dictionary": {"handlers": ["stderr"], "level": "INFO"}},
        }
    )
    logger = logging.getLogger("try.dictionary")
    (handler,) = logger.handlers
    assert isinstance(handler, Lines)
    assert isinstance(handler.formatter, JsonLines)
    logger.removeHandler(handler)
    handler.close()


@pytest.mark.parametrize("options", [{"level": "INFO"}, {"repeats": 0}, {"as_json": "yes"}, {"json": True}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        configure(**options)


async def test_lines_about_several_events_at_once_hide_what_any_of_them_says(caplog: pytest.LogCaptureFixture) -> None:
    shop, names = Service("shop"), ("ada.lovelace", "grace.hopper")

    class Guest(Payload):
        order: str
        email: Annotated[str, Personal("contact")]

    shop.event("guest.came.v1", key="order")(Guest)
    written: list[str] = []

    class Write(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(JsonLines().format(record))

    @shop.on(Guest, consumer="lists")
    async def greet(events: list[Event[Guest]], tx: Tx) -> None:
        logging.getLogger("posthouse.guests").warning("greeting %s", [event.data.email for event in events])

    @shop.on(Guest, consumer="groups", policy=Policy(grouped=True))
    async def fail(event: Event[Guest], tx: Tx) -> None:
        raise LookupError(f"nobody has the address {event.data.email}")

    handler, log = Write(), logging.getLogger("posthouse")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        async with Harness(shop) as harness:
            async with shop.transaction("t1") as tx:
                for name in names:
                    tx.publish(Guest(order=name, email=f"{name}@example.com"))
            await harness.settled()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert [line for line in written if "one by one" in line]
    assert [line for line in written if "greeting ['…', '…']" in line]
    assert len([line for line in written if "nobody has the address …" in line]) == 2
    assert not [line for line in written if "@example.com" in line]
