"""Pages: what is answered at /metrics, /healthz, /readyz and /scale, by whichever server."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from posthouse.errors import did_you_mean
from posthouse.health import Health, PartHealth
from posthouse.outage import span
from posthouse.watch.asking import Asked, Unanswered
from posthouse.watch.beat import Seen
from posthouse.watch.http import Answer, Request, said
from posthouse.watch.prometheus import checked_prefix, render
from posthouse.watch.samples import Sample
from posthouse.watch.scale import Scaling

log = logging.getLogger("posthouse.watch")

SILENT = 5.0
"""Seconds without a turn of the event loop after which a process is not live: whatever it runs stands still."""
JSON = "application/json"

PATHS = {
    "/metrics": "figures of this process and of its stores, for Prometheus",
    "/healthz": "200 while the event loop turns, else 503",
    "/readyz": "200 when work may come, else 503; what each part waits for",
    "/scale": "how much work waits, for autoscalers; ?consumer=NAME or ?relay=SERVICE for one",
}


class Pages:
    """`seen` says how the loop of the Apps is, `waits` why no work may come yet (nothing when it may), `process` the figures of
    this process, and `standing` those of stores and brokers: nothing else is ever waited for."""

    def __init__(
        self,
        *,
        seen: Callable[[], Seen],
        waits: Callable[[], str],
        process: Callable[[], Sequence[Sample]],
        standing: Asked[Sequence[Sample]],
        scaling: Scaling,
        prefix: str = "",
    ) -> None:
        self._seen = seen
        self._waits = waits
        self._process = process
        self._standing = standing
        self._scaling = scaling
        self._prefix = checked_prefix(prefix)
        self._pages: Mapping[str, Callable[[Request], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/scale": self._scaled,
        }

    async def answer(self, request: Request) -> Answer:
        """The page that is asked for; with words where there is none."""
        if (page := self._pages.get(request.path)) is not None:
            return await page(request)
        close = did_you_mean(request.path, PATHS)
        hint = close if close.startswith(" Did") else " There are:"
        return said(
            404, f"there is no page {request.path}.{hint}", *(f"{path:10}{what}" for path, what in PATHS.items())
        )

    async def _metrics(self, request: Request) -> Answer:
        silent = self._seen().silent
        samples = [*self._process(), Sample("loop_silent_seconds", {}, silent)]
        if silent <= SILENT:
            try:
                found = await self._standing.latest()
                self._scaling.look(found, self._standing.at)  # a rate needs two looks
                samples += found
            except Unanswered as error:
                log.warning("the figures of the stores are left out: %s", error)
            except Exception:  # those of the process must not be lost with them
                log.exception("the figures of the stores are left out")
        body, content_type = render(samples, accept=request.headers.get("accept", ""), prefix=self._prefix)
        return Answer(200, body, content_type)

    async def _healthz(self, request: Request) -> Answer:
        seen = self._seen()
        problems = [_silence(seen)] if seen.silent > SILENT else []
        problems += [f"{name}: {health.problem}" for name, health in seen.health.items() if not health.live]
        return _worded(request, not problems, "live", problems, {"problems": problems})

    async def _readyz(self, request: Request) -> Answer:
        seen = self._seen()
        why = _silence(seen) if seen.silent > SILENT else self._waits()
        ready = not why and all(health.ready for health in seen.health.values())
        lines = [
            *([why] if why else []),
            *(f"{name}, {_part(part)}" for name, health in seen.health.items() for part in health.parts),
        ]
        return _worded(request, ready, "ready", lines, {"why": why, "apps": seen.health})

    async def _scaled(self, request: Request) -> Answer:
        seen = self._seen()
        if seen.silent > SILENT:
            return _json(503, {"unknown": _silence(seen)})
        try:
            scale = self._scaling.look(await self._standing.latest(), self._standing.at)
        except Unanswered as error:
            return _json(503, {"unknown": str(error)})
        return _json(*self._scaling.answer(scale, request.query))


def _silence(seen: Seen) -> str:
    return f"the event loop has not turned for {span(seen.silent)}: something blocks it, nothing here is worked on"


def _part(part: PartHealth) -> str:
    since = "" if part.since is None else f" for {span(max(0.0, time.time() - part.since))}"
    if part.state == "unused":
        return f"{part.name}: nobody here uses it"
    return f"{part.name}: {f'waits{since}: {part.reason}' if part.state == 'waiting' else part.state}"


def _worded(
    request: Request, fine: bool, word: str, lines: Sequence[str], more: Mapping[str, object | Mapping[str, Health]]
) -> Answer:
    """In words, or as JSON for who asks for that."""
    status = 200 if fine else 503
    if JSON in request.headers.get("accept", ""):
        return _json(status, {word: fine, **more})
    return said(status, word if fine else f"not {word}", *lines)


def _json(status: int, value: object) -> Answer:
    return Answer(status, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n", JSON)
