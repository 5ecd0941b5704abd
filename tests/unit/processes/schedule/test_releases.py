"""Two releases side by side, of which one has a schedule more: no run is passed over by the one that does not know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse import App, Policy, Run, Service, Tx
from posthouse.app import app_of
from posthouse.receiving import settle
from posthouse.store import HeldEvent, HeldFilter
from posthouse.watch.status import status
from tests.kit.waiting import eventually


def release(folder: Path, *names: str, ran: list[Run]) -> Service:
    """With these schedules, each of which runs once a year, and may be tried once."""
    service = Service("billing", namespace="acme")
    App(service, store=f"sqlite:///{folder}/store.db", broker=f"embedded:///{folder}/log.db")
    for name in names:

        @service.every("0 0 1 1 *", name=name, policy=Policy(max_attempts=1))
        async def note(run: Run, tx: Tx) -> None:
            ran.append(run)

    return service


async def held(service: Service) -> list[HeldEvent]:
    return list(await app_of(service).store.held.find(HeldFilter()))


async def test_a_run_that_an_earlier_release_does_not_know_is_left_to_the_later_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "LOOK_AROUND", 0.1)
    ran: list[Run] = []
    earlier, later = release(tmp_path, "old", ran=ran), release(tmp_path, "old", "fresh", ran=ran)
    async with earlier.running():
        await app_of(later).schedules.run_now("fresh")
        await eventually(lambda: _is_held(earlier))
        assert "has no handler for it here: it is left to a process of the release that has one" in caplog.text
        async with later.running():
            await eventually(lambda: len(ran) == 1)
            assert (ran[0].schedule, ran[0].by_hand) == ("fresh", True)
        await eventually(lambda: _is_settled(earlier))


async def test_a_run_that_nobody_knows_is_dead_in_the_end_and_status_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "LOOK_AROUND", 0.05)
    monkeypatch.setattr(settle, "LEFT_FOR", 0.2)
    earlier, later = release(tmp_path, "old", ran=[]), release(tmp_path, "old", "fresh", ran=[])
    async with later.running():
        pass
    async with earlier.running():
        await app_of(later).schedules.run_now("fresh")
        await eventually(lambda: _is_dead(earlier))
        found = await status([earlier])
        assert [(one.name, one.failed) for one in found.schedules] == [("fresh", 1)]
        assert found.dead == 1
    await later.aclose()


async def _is_held(service: Service) -> bool:
    return [(one.state, one.attempts) for one in await held(service)] in ([("retrying", 0)], [("retrying", 1)])


async def _is_settled(service: Service) -> bool:
    return not await held(service)


async def _is_dead(service: Service) -> bool:
    return [one.state for one in await held(service)] == ["dead"]
