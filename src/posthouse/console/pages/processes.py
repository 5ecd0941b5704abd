"""Processes: who runs, which parts, in which version, and who fell silent."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page
from posthouse.console.listing import everybodys
from posthouse.heartbeat import SILENT
from posthouse.runtime import PARTS
from posthouse.store import Worker
from posthouse.watch.liveness import attended, is_running, of_app


async def processes(ask: Ask) -> object:
    """Whoever ran in the last day, of each store, and the parts that nobody runs."""
    everybodys(ask, "Processes work for events")
    found = await ask.each(_of)
    return {"silent_after": SILENT, "stores": [{"service": name, **facts} for name, facts in found.items()]}


async def _of(app: App) -> dict[str, object]:
    workers = of_app(app, await app.store.workers.read())
    running = [one for one in workers if is_running(one)]
    counts = (await app.store.gauges()).counts
    needed = {
        "relay": any(service.declared.topics for service in app.services) or bool(counts.unsent),
        "consumers": bool(app.opened.topology().groups),
        "timers": counts.timers > 0 or any(True for service in app.services for _ in service.declared.schedules),
        "archive": app.opened.ports.archive_url is not None,
    }
    there = {part for one in running for part in one.parts}
    return {
        "services": [service.name for service in app.services],
        "workers": [_facts(one) for one in workers],
        "missing": [part for part in PARTS if needed[part] and part not in there],
        "idle": sorted(group for group, by in attended(app, running).items() if not by),
        "versions": sorted({f"{one.version} {one.commit}".strip() for one in running}),
    }


def _facts(one: Worker) -> Mapping[str, object]:
    return {
        "id": one.id,
        "name": one.name,
        "host": one.host,
        "pid": one.pid,
        "services": one.services,
        "parts": one.parts,
        "version": one.version,
        "commit": one.commit,
        "consumers": one.consumers,
        "aside": one.aside,
        "since": one.since,
        "age": one.age,
        "state": "runs" if is_running(one) else "stopped" if one.stopped else "silent",
    }


PAGES: Mapping[str, Page] = {"/processes": processes}
