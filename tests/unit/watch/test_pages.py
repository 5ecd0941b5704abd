"""The pages: what a scraper, a probe and an autoscaler are told, also while the loop hangs and the stores are away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence

import pytest

from posthouse import App, Service
from posthouse.errors import ConfigurationError
from posthouse.health import Health, PartHealth
from posthouse.watch.asking import Asked
from posthouse.watch.beat import Beat, Seen
from posthouse.watch.http import Answer, Request
from posthouse.watch.pages import SILENT, Pages
from posthouse.watch.samples import Sample
from posthouse.watch.scale import Scaling
from tests.kit.waiting import eventually

WELL = Health(live=True, ready=True, parts=[PartHealth(name="store", state="ready")])


class Source:
    """Where the figures come from; `hangs` as long as it is told to."""

    def __init__(self) -> None:
        self.hangs = False
        self.reads = 0

    async def read(self) -> Sequence[Sample]:
        self.reads += 1
        await eventually(lambda: not self.hangs, "the end of the hang")
        return [
            Sample("store_up", {"service": "shop"}, 1),
            Sample("outbox_unsent", {"service": "shop", "topic": "o"}, 7),
        ]


def pages(
    source: Source,
    *,
    silent: float = 0.0,
    health: Mapping[str, Health] | None = None,
    waits: str = "",
    prefix: str = "",
) -> Pages:
    return Pages(
        seen=lambda: Seen(silent, {"shop": WELL} if health is None else health),
        waits=lambda: waits,
        process=lambda: [Sample("build_info", {"version": "1"}, 1)],
        standing=Asked(source.read, asyncio.get_running_loop(), within=0.1),
        scaling=Scaling([App(Service("shop"), store="sqlite://", broker="memory://")]),
        prefix=prefix,
    )


def text(answer: Answer) -> str:
    return answer.body.decode()


async def test_metrics_are_those_of_the_process_and_of_its_stores() -> None:
    answer = await pages(Source()).answer(Request("/metrics"))
    assert answer.status == 200
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert 'posthouse_build_info{version="1"} 1.0\n' in text(answer)
    assert 'posthouse_store_up{service="shop"} 1.0\n' in text(answer)
    assert "posthouse_loop_silent_seconds 0.0\n" in text(answer)


async def test_a_scraper_gets_openmetrics_where_it_asks_for_them_and_a_platform_its_names() -> None:
    answer = await pages(Source(), prefix="melmastoon").answer(
        Request("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    )
    assert answer.content_type.startswith("application/openmetrics-text")
    assert text(answer).endswith("# EOF\n")
    assert 'melmastoon_outbox_unpublished_count{service="shop"} 7.0\n' in text(answer)


async def test_a_prefix_that_cannot_be_is_refused_before_anything_is_served() -> None:
    with pytest.raises(ConfigurationError, match="no metric can begin with the prefix '9'"):
        pages(Source(), prefix="9")


async def test_figures_of_the_process_come_while_the_stores_hang() -> None:
    source = Source()
    source.hangs = True
    answer = await pages(source).answer(Request("/metrics"))
    assert "posthouse_build_info" in text(answer)
    assert "posthouse_store_up" not in text(answer)


async def test_figures_of_the_process_come_when_those_of_the_stores_fail(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Source):
        async def read(self) -> Sequence[Sample]:
            raise ZeroDivisionError

    answer = await pages(Broken()).answer(Request("/metrics"))
    assert (answer.status, "posthouse_build_info" in text(answer)) == (200, True)
    assert "ZeroDivisionError" in caplog.text


async def test_a_loop_that_hangs_is_asked_for_nothing_and_said_to_hang() -> None:
    source = Source()
    hanging = pages(source, silent=SILENT + 7)
    answer = await hanging.answer(Request("/metrics"))
    assert "posthouse_loop_silent_seconds 12.0\n" in text(answer)
    assert "posthouse_build_info" in text(answer)
    for path in ("/healthz", "/readyz", "/scale"):
        answer = await hanging.answer(Request(path))
        assert answer.status == 503, path
        assert "the event loop has not turned for 12 s" in text(answer)
    assert source.reads == 0


async def test_a_process_is_live_while_its_loop_turns_and_only_a_new_start_helps_one_that_is_not() -> None:
    away = Health(live=True, ready=False, parts=[])
    stuck = Health(live=False, ready=True, parts=[], problem="2 of its loops hang and do not end")
    answer = await pages(Source(), health={"shop": away}).answer(Request("/healthz"))
    assert (answer.status, text(answer)) == (200, "live\n"), "a store that is away is no reason to kill a process"
    answer = await pages(Source(), health={"shop": away, "hotel": stuck}).answer(Request("/healthz"))
    assert (answer.status, text(answer)) == (503, "not live\nhotel: 2 of its loops hang and do not end\n")


async def test_readiness_says_in_words_what_each_part_waits_for() -> None:
    parts = [
        PartHealth(name="store", state="waiting", since=time.time() - 12, reason="connection refused"),
        PartHealth(name="broker", state="starting"),
        PartHealth(name="relay", state="ready"),
    ]
    waiting = pages(Source(), health={"hotel": WELL, "shop": Health(live=True, ready=False, parts=parts)})
    answer = await waiting.answer(Request("/readyz"))
    assert answer.status == 503
    assert text(answer).splitlines() == [
        "not ready",
        "hotel, store: ready",
        "shop, store: waits for 12 s: connection refused",
        "shop, broker: starting",
        "shop, relay: ready",
    ]
    answer = await waiting.answer(Request("/readyz", headers={"accept": "application/json"}))
    said = json.loads(answer.body)
    assert (answer.status, answer.content_type, said["ready"]) == (503, "application/json", False)
    assert said["apps"]["shop"]["parts"][0]["reason"] == "connection refused"


async def test_one_that_has_not_begun_or_is_stopping_is_not_ready() -> None:
    answer = await pages(Source(), waits="it was asked to stop").answer(Request("/readyz"))
    assert (answer.status, text(answer).splitlines()[:2]) == (503, ["not ready", "it was asked to stop"])
    assert (await pages(Source()).answer(Request("/readyz"))).status == 200


async def test_scale_is_unknown_while_nothing_is_read() -> None:
    source = Source()
    source.hangs = True
    answer = await pages(source).answer(Request("/scale"))
    assert (answer.status, json.loads(answer.body)) == (503, {"unknown": "nothing was read within 0.1 s"})


async def test_scale_has_its_rates_from_scrapes_as_well() -> None:
    source = Source()
    watched = pages(source)
    await watched.answer(Request("/metrics"))
    answer = await watched.answer(Request("/scale", query={"relay": "shop"}))
    assert (answer.status, json.loads(answer.body)["backlog"]) == (200, 7)
    assert source.reads == 1


async def test_a_page_that_there_is_not_names_those_that_there_are() -> None:
    answer = await pages(Source()).answer(Request("/metric"))
    assert answer.status == 404
    assert text(answer).startswith("there is no page /metric. Did you mean '/metrics'?\n/metrics  figures")
    for path in ("/", "", "/METRICS", "/metrics/"):
        answer = await pages(Source()).answer(Request(path))
        assert answer.status == 404
        assert "/healthz  200 while" in text(answer)


async def test_a_health_that_fails_is_no_reason_to_call_a_process_dead(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def health() -> Mapping[str, Health]:
        asked.append(1)
        raise ZeroDivisionError

    beat = Beat(health)
    with beat.beating():
        await eventually(lambda: len(asked) > 1, "another beat")
        assert beat.seen().silent == 0
    assert "ZeroDivisionError" in caplog.text


async def test_a_beat_is_silent_for_as_long_as_the_loop_is_blocked() -> None:
    beat = Beat(lambda: {"shop": WELL})
    with beat.beating():
        await eventually(lambda: beat.seen().health, "the first beat")
        assert beat.seen().silent == 0
        time.sleep(1.2)  # noqa: ASYNC251 - what a handler must not do
        assert beat.seen().silent > 0.5
        await eventually(lambda: beat.seen().silent == 0, "the next beat")
