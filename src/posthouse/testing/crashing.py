"""Crashing: run a scenario again and again, each time with a power cut after another step, and compare how it ends."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from posthouse.app import app_of
from posthouse.contracts.boxes import SEALED
from posthouse.errors import DecodeError
from posthouse.events import decode_any
from posthouse.service import Service
from posthouse.testing.crashing_plant import Plant, Step
from posthouse.testing.harness import Harness

Scenario = Callable[[Harness], Awaitable[None]]
"""What happens from outside: facts that are published, transactions, the clock that is moved."""

End = Callable[[Harness], Awaitable[object]]
"""What counts when all is over."""

CARRIED = re.compile(f"{SEALED}[^⟩]*")
"""A secret that a saga carries on, which is different in each run."""


class Crashes(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried: the steps of the run without a crash, and how many runs had one."""

    steps: int
    runs: int


async def assert_survives_crashes(
    scenario: Scenario, *services: Service, end: End | None = None, every: int = 1
) -> Crashes:
    """Run a scenario on a harness, and then once for each step that lasts (a commit, a publish, a moved cursor, fired
    timers), with all services stopped abruptly right after it and started again; and for the moment before each commit of a
    handler. Each run must end as the first did.

    The end is everything that is left: your tables, the facts that were published, sagas with their state, held events and
    timers. Where that holds what is new in every run, as ids that a handler makes, say with `end` what counts. `every=5`
    tries each fifth step only. Raises AssertionError, which names the step and what differs.
    """
    wanted, steps = await _run(scenario, services, end or whole, None)
    tried = range(1, len(steps) + 1, every)
    for number in tried:
        try:
            found, taken = await _run(scenario, services, end or whole, number)
        except Exception as error:
            raise AssertionError(f"a crash after step {number}, {_name(steps, number)}: {error!r}") from error
        if found != wanted:
            raise AssertionError(
                f"a crash after step {number}, {_name(taken, number)}, leads to another end:\n{_compared(wanted, found)}"
            )
    return Crashes(steps=len(steps), runs=len(tried))


async def whole(harness: Harness) -> object:
    """Everything that is left, by name."""
    found: dict[str, object] = dict(await harness.everything())
    found["facts"] = await _facts(harness)
    for service in harness.services:
        async for row in app_of(service).sagas.find():
            name = f"saga {row.saga} {row.id} of {row.tenant}"
            state = CARRIED.sub(SEALED, bytes(row.state).decode())
            found[name] = (row.status, list(row.steps), row.reason, state, sorted(row.deadlines))
        pending = await app_of(service).store.timers.pending(limit=100_000)
        facts = [await harness.opened(decode_any(timer.row.headers, timer.row.body)) for timer in pending]
        found[f"timers of {service.name}"] = sorted(
            (timer.due_at, timer.row.topic, fact.data) for timer, fact in zip(pending, facts, strict=True)
        )
    return found


async def _run(
    scenario: Scenario, services: tuple[Service, ...], end: End, kill_after: int | None
) -> tuple[object, list[Step]]:
    async with Plant(*services, kill_after=kill_after) as plant:
        await scenario(plant)
        await plant.settled()
        plant.counting = False
        await plant.settled()
        return await end(plant), plant.steps


async def _facts(harness: Harness) -> list[tuple[str, bytes]]:
    """What the broker has, each event once, however often it was sent. What is secret is different in each run: it counts what it says."""
    found: dict[str, tuple[str, bytes]] = {}
    for log in harness.broker.log.topics.values():
        for stored in log:
            try:
                event = decode_any(stored.frame.headers, stored.frame.body)
            except DecodeError:
                continue
            found[event.id] = (event.type, (await harness.opened(event)).data)
    return sorted(found.values())


def _name(steps: list[Step], number: int) -> str:
    return str(steps[number - 1]) if number <= len(steps) else "which did not come"


def _compared(wanted: object, found: object) -> str:
    if not isinstance(wanted, Mapping) or not isinstance(found, Mapping):
        return f"  expected {wanted!r}\n  got      {found!r}"
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    return "\n".join(f"  {name}: expected {wanted.get(name)!r}, got {found.get(name)!r}" for name in names)
