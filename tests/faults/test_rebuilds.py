"""Read models that are rebuilt while others write, by processes that are killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.store import HeldEvent, HeldFilter
from posthouse.testing import rehost
from posthouse.watch.status import drained
from tests.faults.effect_member import desk
from tests.faults.rebuild_member import entries, ledger
from tests.kit.long import LONG
from tests.kit.servers.postgres import PostgresServer

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

KILLS = 6


class Scene:
    """Processes in one folder, on one store and one log."""

    def __init__(self, folder: Path, store: str, source: str) -> None:
        self.folder = folder
        self.source = source
        """What is rebuilt from."""
        self.member = "rebuild_member"
        """The module whose parts are played."""
        self.store, self.broker = store, f"embedded:///{folder}/log.db?single_host=true"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("POSTHOUSE_")}
        self._env = {**clean, "PYTHONPATH": str(Path(__file__).parents[2]), "POSTHOUSE_STORE": store}
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.faults.{self.member}", *words],
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


PLACES = [("sqlite", "log"), ("postgres", "streams"), ("sqlite", "streams"), ("postgres", "log")]


@pytest.fixture(params=PLACES if LONG else PLACES[:2], ids="-".join)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A store, and what is rebuilt from."""
    store, source = request.param
    if store == "sqlite":
        scene = Scene(tmp_path, f"sqlite:///{tmp_path}/ledger.db?synchronous=NORMAL", source)
        yield scene
        scene.end()
        return
    server: PostgresServer = request.getfixturevalue("postgres_in_memory")
    with server.database() as url:
        scene = Scene(tmp_path, url, source)
        yield scene
        scene.end()


async def test_a_rebuild_killed_again_and_again_beside_writers_feeds_every_event_once(scene: Scene) -> None:
    source = scene.source
    before = rehost(ledger, store=scene.store, broker=scene.broker, clock=app_of(ledger).clock)
    chance, model = random.Random(f"{source}"), "entries"
    try:
        await app_of(ledger).store.upgrade()
        await app_of(ledger).open()
        server = scene.start("serve")
        writers = [scene.start("write", str(number), "0.01") for number in range(2)]
        await _until_there_are(300)
        for kill in range(KILLS):
            rebuild = scene.start("rebuild", model, source)
            await asyncio.to_thread(_wait, rebuild, 0.5 + chance.random() * 1.2)
            rebuild.send_signal(signal.SIGKILL)
            if kill == KILLS // 2:
                server.kill()
                server = scene.start("serve")
        generation = await asyncio.to_thread(_built, scene, model, source)
        (scene.folder / "stop").touch()
        for writer in writers:
            assert await asyncio.to_thread(writer.wait, 30) == 0
        await drained(ledger, timeout=180)
        await _until_nothing_is_retried()
        await _assert_whole(at_least=generation)
        (scene.folder / "end").touch()
        assert await asyncio.to_thread(server.wait, 30) == 0
    finally:
        await ledger.aclose()
        ledger.hosted_by(before)


async def test_of_every_event_a_fact_is_said_once_though_rebuilds_die_before_and_in_their_swaps(scene: Scene) -> None:
    """Two swaps beside writers: each rebuild is killed on its way or in the transaction of its swap, and the service once. A
    fact that is lost is missed among what was heard, one that is repeated is there twice."""
    scene.member, source = "effect_member", scene.source
    before = rehost(desk, store=scene.store, broker=scene.broker, clock=app_of(desk).clock)
    chance, model = random.Random(f"effects {source}"), "notices"
    try:
        await app_of(desk).store.upgrade()
        await app_of(desk).open()
        server = scene.start("serve")
        writers = [scene.start("write", str(number), "0.8") for number in range(2)]
        await _until_there_are(20, desk)
        generations = []
        for round in range(2):
            for word in ("die", "die-again"):
                (scene.folder / word).touch()
                rebuild = scene.start("rebuild", model, source)
                await asyncio.to_thread(_wait, rebuild, 30.0 if word == "die" else 0.7 + chance.random())
                rebuild.kill()
            if round == 1:
                server.kill()
                server = scene.start("serve")
            (scene.folder / "die-again").unlink(missing_ok=True)
            generations.append(await asyncio.to_thread(_built, scene, model, source))
        (scene.folder / "stop").touch()
        for writer in writers:
            assert await asyncio.to_thread(writer.wait, 30) == 0
        await drained(desk, timeout=180)
        async with asyncio.timeout(90):
            while await _unheard():  # noqa: ASYNC110 - others retry what was in hand at a kill
                await asyncio.sleep(0.05)
        await drained(desk, timeout=60)
        async with app_of(desk).store.begin() as tx:
            heard = await tx.execute("SELECT tenant, account, version FROM heard ORDER BY 1, 2, 3")
            swaps = [number for (number,) in await tx.execute("SELECT generation FROM swapped ORDER BY 1")]
            streams = await tx.execute(f"SELECT tenant, stream, version FROM {_streams(desk)} ORDER BY 1, 2")
        assert list(heard) == [
            (tenant, account, number)
            for tenant, account, version in streams
            for number in range(1, int(str(version)) + 1)
        ]
        assert len(swaps) == len(set(swaps)), "told twice"
        assert set(generations) <= set(swaps)
        (scene.folder / "end").touch()
        assert await asyncio.to_thread(server.wait, 30) == 0
    finally:
        await desk.aclose()
        desk.hosted_by(before)


def _streams(service: Service) -> str:
    return "posthouse.stream" if "postgresql" in app_of(service).opened.ports.store_url else "posthouse_stream"


async def _unheard() -> bool:
    """Whether fewer facts were heard than there are postings."""
    async with app_of(desk).store.begin() as tx:
        (heard,) = (await tx.execute("SELECT count(*) FROM heard")).one()
        (happened,) = (await tx.execute(f"SELECT coalesce(sum(version), 0) FROM {_streams(desk)}")).one()
    return int(str(heard)) < int(str(happened))


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _built(scene: Scene, model: str, source: str) -> int:
    """The rebuild that is left alone gets through, once the lease of the last one that was killed is over."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        process = scene.start("rebuild", model, source)
        said, _ = process.communicate(timeout=180)
        if process.returncode == 0:
            return int(said)
    raise AssertionError("no rebuild got through")


async def _until_there_are(events: int, service: Service = ledger) -> None:
    async with asyncio.timeout(180):
        while await app_of(service).store.projections.extent(["account"]) < events:  # noqa: ASYNC110 - others write
            await asyncio.sleep(0.05)


async def _until_nothing_is_retried() -> None:
    """What was in hand when a process was killed is run once more, by whoever is there."""
    async with asyncio.timeout(90):
        while any(held.state != "dead" for held in await _held()):  # noqa: ASYNC110 - others retry
            await asyncio.sleep(0.05)


async def _held() -> Sequence[HeldEvent]:
    live = [row for row in await app_of(ledger).store.projections.generations() if row.state == "live"]
    return await app_of(ledger).store.held.find(HeldFilter(consumer=entries.group(live[0].number)), limit=1000)


async def _assert_whole(at_least: int) -> None:
    """Every posting of every account once, each after the one before."""
    await app_of(ledger).projections.learn()
    async with app_of(ledger).store.begin() as tx:
        number = await app_of(ledger).store.projections.live(tx, "ledger.entries")
        assert number is not None
        assert number >= at_least >= 2
        rows = await tx.execute(
            f"SELECT tenant, account, count(*), max(version), sum(CASE WHEN after = version - 1 THEN 1 ELSE 0 END) "
            f"FROM entries_entry_{number} GROUP BY tenant, account ORDER BY tenant, account"
        )
        streams = await tx.execute(f"SELECT tenant, stream, version FROM {_streams(ledger)} ORDER BY tenant, stream")
    assert [(tenant, account, version, version, version) for tenant, account, version in streams] == list(rows)
    assert await _held() == []
