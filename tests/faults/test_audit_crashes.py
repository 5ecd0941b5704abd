"""Members of an audit log are killed while it is written and signed: every event is in it once, and all of it is as it was signed."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from posthouse.clock import new_id
from posthouse.history.audit.batches import EVENTS, id_of, read_batch
from posthouse.history.audit.keys import verifiers
from posthouse.history.audit.place import Place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.verify import verify
from tests.faults.audit_member import shop
from tests.kit.servers.nats import NatsServer
from tests.kit.signing import Keys
from tests.kit.waiting import eventually

KILLS, EACH = 8, 40


def _logged(place: Place) -> list[str]:
    batches = [read_batch(place.get(path) or b"") for path in place.list(EVENTS)]
    return [id_of(event) for batch in batches for event in batch.events]


async def _member(folder: Path, *words: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "tests.faults.audit_member", str(folder), *words]
    member = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert member.stdout is not None
    assert await member.stdout.readline() == b"runs\n"
    return member


async def _killed(member: asyncio.subprocess.Process) -> None:
    member.kill()
    await member.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_members_that_are_killed_lose_nothing_and_double_nothing(tmp_path: Path, nats_server: NatsServer) -> None:
    keys = Keys(tmp_path)
    keys.make("a1", source="/shop", use="audit")
    keys.signing("a1")
    chance, place, said = random.Random(23), Folder(tmp_path / "log"), list[str]()
    where = (nats_server.url, f"shop{new_id()[-6:]}")
    app, orders, issued = shop(tmp_path, *where)
    members: list[asyncio.subprocess.Process] = []
    async with app.running(only=["relay"]):
        try:
            for number in range(KILLS):
                while len(members) < 2:
                    members.append(await _member(tmp_path, *where))
                for each in range(EACH):
                    async with orders.transaction("t1") as tx:
                        said.append(tx.publish(issued(id=f"i{number}-{each}")))
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                await _killed(members.pop(chance.randrange(2)))
            members.append(await _member(tmp_path, *where))
            await eventually(lambda: len(_logged(place)) >= len(said), within=90)
            await eventually(
                lambda: verify(place, verifiers(keys.file)).signed >= len(said), "signing the rest", within=60
            )
        finally:
            for member in members:
                await _killed(member)
    assert sorted(_logged(place)) == sorted(said)
    report = verify(place, verifiers(keys.file), Folder(tmp_path / "second"))
    assert ([finding.words for finding in report.findings], report.signed) == ([], KILLS * EACH)
