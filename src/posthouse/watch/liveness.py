"""Liveness: who runs some services, and what waits for a part that nobody runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from posthouse.app import App, apps_of
from posthouse.heartbeat import SILENT
from posthouse.runtime import PARTS, Part
from posthouse.service import Service
from posthouse.store import Worker
from posthouse.store.workers import Aside
from posthouse.watch.status import Status

STARTS_WITHIN = 10.0
"""Seconds after which a process has adopted its schedules."""


class SagaRunners(msgspec.Struct, frozen=True, kw_only=True):
    """Of one saga: the processes that run it, each with its release, and those that stand aside, each with the reason."""

    run_by: Mapping[str, str]
    aside: Mapping[str, Aside]

    @property
    def nobody(self) -> bool:
        """Nobody runs it, and nobody is about to."""
        return not self.run_by and "waits" not in self.aside.values()


class Attendance(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the services of one App. `workers` are all that are remembered, those that are gone too; `missing` the parts that
    it needs and nobody runs; `idle` the consumers of it that nobody runs, be it that whoever runs consumers does not have them, or that
    all of them stand aside; `sagas` who runs each saga, by its consumer; `waiting` how many events or timers each of these parts keeps waiting."""

    services: str
    workers: Sequence[Worker]
    missing: Sequence[Part]
    idle: Sequence[str]
    waiting: Mapping[Part, int]
    sagas: Mapping[str, SagaRunners] = {}
    unknown_schedules: Sequence[str] = ()
    """Those that no process has adopted, though some run the timers: they do not have them."""

    @property
    def running(self) -> Sequence[Worker]:
        return [worker for worker in self.workers if is_running(worker)]

    @property
    def versions(self) -> Mapping[tuple[str, str], int]:
        """How many run each version of Posthouse and of the application."""
        found: dict[tuple[str, str], int] = {}
        for worker in self.running:
            found[worker.version, worker.commit] = found.get((worker.version, worker.commit), 0) + 1
        return found


def is_running(worker: Worker) -> bool:
    """Whether it gave a sign of life lately, and did not say that it stopped. A sign from the future is none: it is of a clock
    that was set back since, or of a machine that is wrong about the time."""
    return not worker.stopped and -SILENT <= worker.age <= SILENT


async def attendance(services: Sequence[Service], figures: Status) -> Sequence[Attendance]:
    """Who runs each of the Apps of these services."""
    return [await _of(app, figures) for app in apps_of(services)]


async def _of(app: App, figures: Status) -> Attendance:
    workers = of_app(app, await app.store.workers.read())
    running = [worker for worker in workers if is_running(worker)]
    sagas = {consumer: _runners(consumer, running) for consumer in _sagas(app) if _runs_it(consumer, running)}
    idle = [group for group, by in attended(app, running).items() if not by]
    work = _work(app, figures, idle)
    there = {part for worker in running for part in worker.parts if part != "consumers"}
    missing = [part for part in PARTS if part in work and part not in there]
    return Attendance(
        services=app.opened.name,
        workers=workers,
        missing=missing,
        idle=idle,
        waiting={part: work[part] for part in missing if work[part]},
        sagas=sagas,
        unknown_schedules=await _unknown(app, running),
    )


def of_app(app: App, workers: Sequence[Worker]) -> Sequence[Worker]:
    """Those that run one of its services."""
    names = {service.name for service in app.services}
    return [worker for worker in workers if names.intersection(worker.services)]


def attended(app: App, running: Sequence[Worker]) -> Mapping[str, Sequence[Worker]]:
    """Who runs each consumer group of an App; of a saga nobody where all stand aside and none is about to run it. A worker has
    the read model, whichever generation of it is live."""
    generations, sagas = app.projections.groups(), _sagas(app)
    found: dict[str, Sequence[Worker]] = {}
    for group in app.opened.topology().groups:
        consumer = generations.get(group, group)
        by = _runs_it(consumer, running)
        found[group] = [] if consumer in sagas and _runners(consumer, running).nobody else by
    return found


def _sagas(app: App) -> Collection[str]:
    return {of.consumer for service in app.services for of in service.declared.saga_types.values()}


def _runs_it(consumer: str, running: Sequence[Worker]) -> list[Worker]:
    return [worker for worker in running if "consumers" in worker.parts and consumer in worker.consumers]


async def _unknown(app: App, running: Sequence[Worker]) -> list[str]:
    """A process with timers adopts all that it has when it starts."""
    declared = any(True for service in app.services for _ in service.declared.schedules)
    timers = any("timers" in worker.parts and worker.since > STARTS_WITHIN for worker in running)
    if not declared or not timers:
        return []
    return [view.name for view in await app.schedules.find() if view.declared is not None and view.row is None]


def _runners(consumer: str, running: Sequence[Worker]) -> SagaRunners:
    having = [worker for worker in running if "consumers" in worker.parts and consumer in worker.releases]
    return SagaRunners(
        run_by={worker.name: worker.releases[consumer] for worker in having if consumer not in worker.aside},
        aside={worker.name: worker.aside[consumer] for worker in having if consumer in worker.aside},
    )


def _work(app: App, figures: Status, idle: Collection[str]) -> dict[Part, int]:
    """The parts that it needs, and how much each has to do; of its consumers those that are idle."""
    unsent, timers = figures.unsent[app.opened.name], figures.timers[app.opened.name]
    lines = [line for line in figures.lines if line.consumer in idle]
    work: dict[Part, int] = {}
    if unsent or any(service.declared.topics for service in app.services):
        work["relay"] = unsent
    if idle:
        work["consumers"] = sum(line.in_flight - line.refused + line.held.get("retrying", 0) for line in lines)
    names = {service.name for service in app.services}
    overdue = sum(one.overdue is not None for one in figures.schedules if one.service in names)
    if timers or overdue:
        work["timers"] = timers + overdue
    if app.opened.ports.archive_url is not None:
        work["archive"] = 0
    return work
