"""The tiers of docs/recovery.md, by the commands that stand there, on real servers; each prints what it lost and how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import nats
import psycopg
import pytest

from posthouse.stores.postgres import PostgresStore
from tests.kit.servers.memory import in_memory
from tests.kit.servers.nats import NatsServer, program
from tests.kit.servers.postgres import SETTINGS, PostgresServer, Unavailable, binaries, give_up
from tests.kit.servers.process import folder_of, started
from tests.kit.servers.restartable import RestartablePostgres
from tests.kit.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text(encoding="utf-8")
SHOP = Path(__file__).with_name("recovery_shop.py")
KEYS = "abcde"
PATIENCE = 60.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LOST_AT_MOST, BACK_WITHIN = 5 * 60.0, 30 * 60.0
"""Seconds, as requirement D8 says."""


def blocks(tier: int, kind: str = "") -> list[str]:
    """What a reader of the page types in a tier, block by block."""
    section = re.search(rf"^## {tier}\..*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    found = [
        body for name, body in re.findall(r"^```(\w*)\n(.*?)^```", section[0], re.MULTILINE | re.DOTALL) if name == kind
    ]
    assert found
    return found


class House:
    """Where the commands of the page run: a folder with the application, its databases, a broker and an archive."""

    def __init__(self, folder: Path, broker: Losable, orders: str, billing: str, mail: str) -> None:
        self.folder, self.broker, self.stores = folder, broker, {"orders": orders, "billing": billing, "mail": mail}
        shutil.copy(SHOP, folder / "shop.py")
        (folder / "bin").mkdir()
        command = folder / "bin" / "posthouse"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m posthouse "$@"\n')
        command.chmod(0o755)
        self.variables = {
            **os.environ,
            **{f"{name.upper()}_STORE": url for name, url in self.stores.items()},
            "BROKER": broker.url,
            "ARCHIVE": f"file://{folder}/archive",
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.said = 0
        asyncio.run(self._tables())

    async def _tables(self) -> None:
        for url in self.stores.values():
            store = PostgresStore(url)
            await store.upgrade()
            await store.aclose()

    def types(self, block: str) -> str:
        """What a shell prints that runs these lines."""
        run = subprocess.run(
            ["bash", "-euc", block],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert run.returncode == 0, (block, run.stdout, run.stderr)
        return run.stdout

    def start(self, *names: str) -> None:
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                command = [sys.executable, "-m", "posthouse", "run", f"shop:{name}"]
                self.workers[name] = subprocess.Popen(
                    command, cwd=self.folder, env=self.variables, stdout=log, stderr=log
                )

    def stop(self, *names: str) -> None:
        """All that run, if none is named."""
        ending = [self.workers.pop(name) for name in names or list(self.workers)]
        for worker in ending:
            worker.terminate()
        for worker in ending:
            worker.wait(PATIENCE)

    def say(self, rounds: int) -> None:
        """One event of each key in each round."""
        self.types(f"{sys.executable} shop.py say {self.said + 1} {self.said + rounds}")
        self.said += rounds

    def done(self, name: str, release: str = "") -> dict[str, list[int]]:
        """What a service applied, in the order in which it did."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        with psycopg.connect(self.stores[name], autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('done')").fetchone() == (None,):
                return found
            asked = "SELECT key, number FROM done WHERE %s IN ('', release) ORDER BY id"
            for key, number in connection.execute(asked, [release]):
                found[key].append(number)
        return dict(found)

    def all_of_it(self, first: int = 1) -> dict[str, list[int]]:
        return {key: list(range(first, self.said + 1)) for key in KEYS}

    def comes_to(self, name: str, expected: dict[str, list[int]], release: str = "") -> None:
        until(
            lambda: self.done(name, release) == expected,
            f"{name} to have {expected}, and not {self.done(name, release)}",
            within=PATIENCE,
        )

    def archived(self, events: int) -> None:
        count = f"{sys.executable} -m posthouse archive query shop:billing 'SELECT count(*) AS n FROM events' --json"
        until(
            lambda: re.search(rf"\b{events}\b", self.types(count)),
            f"{events} in the archive",
            within=PATIENCE,
            pause=0.2,
        )

    def missing(self, name: str) -> int:
        """Events that a service has not applied at all."""
        return sum(self.said - len(set(self.done(name).get(key, ()))) for key in KEYS)

    @contextlib.contextmanager
    def archiving(self) -> Iterator[None]:
        """The archive alone is written."""
        command = [sys.executable, "-m", "posthouse", "run", "shop:billing", "--only", "archive"]
        with subprocess.Popen(command, cwd=self.folder, env=self.variables, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()
                process.wait(PATIENCE)

    def outbox_is_empty(self) -> bool:
        with psycopg.connect(self.stores["orders"], autocommit=True) as connection:
            return connection.execute("SELECT count(*) FROM posthouse.outbox").fetchone() == (0,)

    def in_the_log(self) -> int:
        """Events that the broker has of orders."""

        async def count() -> int:
            client = await nats.connect(self.broker.url)
            found = await client.jetstream().stream_info("shop_orders_order")
            await client.close()
            return found.state.messages

        return asyncio.run(count())

    def set_aside(self) -> dict[int, str]:
        """What the mail has quarantined: numbers, and the keys."""
        held = json.loads(self.types("posthouse held list shop:mail --state quarantined --json"))
        return {one["id"]: one["key"] for one in held}

    def settles(self, **differences: int) -> None:
        """Nothing is on its way or held any more, and nothing is missing (above 0) or too many, but for these."""
        status = "posthouse status shop:orders shop:billing shop:mail --json || true"
        expected = {name: (differences.get(name, 0), 0, False) for name in ("billing", "mail")}

        def found() -> dict[str, tuple[int, int, bool]]:
            lines = json.loads(self.types(status))["lines"]
            return {one["consumer"]: (one["difference"], one["in_flight"], any(one["held"].values())) for one in lines}

        until(lambda: found() == expected, f"the sum to be {expected}", within=PATIENCE, pause=0.5)

    def measured(self, tier: int, began: float, lost: int, gap: float = 0.0) -> None:
        took = time.monotonic() - began
        print(
            f"\ntier {tier}: events lost {lost}, recovery point {gap:.1f} s, recovery time {took:.1f} s, {self.said * len(KEYS)} events"
        )
        assert lost == 0
        assert gap <= LOST_AT_MOST
        assert took <= BACK_WITHIN


class Losable(NatsServer):
    def lose(self) -> None:
        """It comes back with an empty disk."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self._folder / "data")
        self.start()


@pytest.fixture
def broker() -> Iterator[Losable]:
    with folder_of("nats") as folder, started(Losable(program(), folder)) as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, broker: Losable, postgres_server: PostgresServer) -> Iterator[House]:
    with contextlib.ExitStack() as stack:
        house = House(tmp_path, broker, *(stack.enter_context(postgres_server.database()) for _ in range(3)))
        stack.callback(house.stop)
        yield house


def moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_tier_1_a_bug_younger_than_the_log_is_mended_from_the_log(house: House) -> None:
    house.variables["SINCE"] = moment()
    house.start("orders", "billing", "mail")
    house.say(20)
    house.comes_to("mail", house.all_of_it())
    house.stop("billing")
    house.variables["RELEASE"] = "mended"
    house.start("billing")
    house.say(2)
    house.comes_to("billing", house.all_of_it(21), "mended")
    began = time.monotonic()
    for block in blocks(1):
        house.types(block)
    assert house.done("billing", "wrong") == {}
    house.say(2)
    house.comes_to("mail", house.all_of_it())
    house.comes_to("billing", house.all_of_it(), "mended")
    house.measured(1, began, house.missing("billing"))
    house.settles()
    assert (house.done("billing"), house.done("mail")) == (house.all_of_it(), house.all_of_it())


def let_go(broker: Losable, *streams: str) -> None:
    """What a retention does once all that is there is too old."""

    async def purge() -> None:
        client = await nats.connect(broker.url)
        for stream in streams:
            await client.jetstream().purge_stream(stream)
        await client.close()

    asyncio.run(purge())


def test_tier_2_a_bug_older_than_the_log_is_mended_from_the_archive(house: House) -> None:
    house.variables["SINCE"] = moment()
    house.start("orders", "billing", "mail")
    house.say(20)
    house.comes_to("mail", house.all_of_it())
    house.archived(2 * 20 * len(KEYS))
    house.stop("billing")
    let_go(house.broker, "shop_orders_order", "shop_billing_invoice")
    house.variables["RELEASE"] = "mended"
    house.start("billing")
    house.say(2)
    house.comes_to("billing", house.all_of_it(21), "mended")
    began = time.monotonic()
    for block in blocks(2):
        house.types(block)
    assert house.done("billing", "wrong") == {}
    lost = house.missing("billing")
    house.say(2)
    house.comes_to("billing", house.all_of_it(), "mended")
    house.comes_to("mail", house.all_of_it())
    house.measured(2, began, lost)
    house.settles()
    assert (house.done("billing"), house.done("mail")) == (house.all_of_it(), house.all_of_it())


class Archived(RestartablePostgres):
    """It copies its WAL to `/backup/wal`, as the page says."""

    def __init__(self, place: Path) -> None:
        said = dict(re.findall(r"^(\w+) = '?(.*?)'?$", blocks(3, "ini")[0], re.MULTILINE))
        settings = {name: value.replace("/backup", str(place / "backup")) for name, value in said.items()}
        super().__init__(binaries(), place, {**SETTINGS, **settings})
        self.place = place

    def make(self) -> None:
        super().make()
        (self.place / "backup" / "wal").mkdir(parents=True)
        if self._user is not None:
            for folder in ("backup", "backup/wal"):
                os.chown(self.place / folder, self._user, -1)

    def types(self, block: str) -> None:
        """As the one who runs the server would."""
        environment = {
            **os.environ,
            "PATH": f"{binaries()}{os.pathsep}{os.environ['PATH']}",
            "PGDATA": str(self.place / "data"),
            "BILLING_STORE": self.url,
        }
        block = block.replace("/backup", str(self.place / "backup"))
        subprocess.run(["bash", "-euc", block], env=environment, user=self._user, cwd="/", check=True, timeout=PATIENCE)

    def archive_now(self) -> None:
        """What happens every `archive_timeout` by itself."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
            assert row is not None
            until((self.place / "backup" / "wal" / row[0]).exists, "the WAL to be archived", within=PATIENCE)

    def is_lost(self) -> None:
        assert self._server is not None
        self._end(signal.SIGKILL)
        shutil.rmtree(self.place / "data")

    def takes_writes(self) -> bool:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


@pytest.fixture
def archived() -> Iterator[Archived]:
    try:
        if not (binaries() / "pg_basebackup").exists():
            raise Unavailable("these binaries have no pg_basebackup")
    except Unavailable as error:
        give_up(f"no PostgreSQL that may be lost: {error}")
    place = Path(tempfile.mkdtemp(prefix="posthouse-recovery-", dir=in_memory()))
    server = Archived(place)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


def test_tier_3_a_lost_database_is_brought_back_to_a_point_in_time_and_catches_up(
    tmp_path: Path, broker: Losable, postgres_server: PostgresServer, archived: Archived
) -> None:
    with contextlib.ExitStack() as stack:
        orders, mail = (stack.enter_context(postgres_server.database()) for _ in range(2))
        house = House(tmp_path, broker, orders, archived.url, mail)
        stack.callback(house.stop)
        house.start("orders", "billing", "mail")
        house.say(5)
        house.comes_to("mail", house.all_of_it())
        base, bring_back, restored, again, decide = blocks(3)
        archived.types(base)
        house.say(5)
        house.comes_to("mail", house.all_of_it())
        archived.archive_now()
        point, house.variables["SINCE"] = time.monotonic(), moment()
        house.say(3)
        house.types(f"{sys.executable} shop.py remind 1")
        house.comes_to("mail", {**house.all_of_it(), "z": [1]})
        archived.is_lost()
        gap, began = time.monotonic() - point, time.monotonic()
        house.stop("billing")
        archived.types(bring_back)
        archived.start()
        until(archived.takes_writes, "the end of the recovery", within=PATIENCE)
        assert house.done("billing") == {key: list(range(1, 11)) for key in KEYS}, "it lacks what came after the point"
        house.types(restored)
        house.start("billing")
        house.say(1)
        house.types(f"{sys.executable} shop.py remind 2")
        house.types(again)
        house.comes_to("billing", house.all_of_it())
        house.comes_to("mail", {**house.all_of_it(), "z": [1]})
        until(
            lambda: len(house.set_aside()) == 3 * len(KEYS) + 1,
            "what has a number again to be set aside",
            within=PATIENCE,
        )
        new = [number for number, key in house.set_aside().items() if key == "z"]
        house.variables["NEW"], house.variables["SAID_AGAIN"] = (
            " ".join(map(str, numbers)) for numbers in (new, sorted(set(house.set_aside()) - set(new)))
        )
        house.types(decide)
        house.comes_to("mail", {**house.all_of_it(), "z": [1, 2]})
        lost = house.missing("billing") + house.missing("mail")
        house.measured(3, began, lost, gap)
        house.say(1)
        house.comes_to("mail", {**house.all_of_it(), "z": [1, 2]})
        house.settles(mail=-3 * len(KEYS) - 1)
        assert house.done("mail") == {**house.all_of_it(), "z": [1, 2]}


def test_tier_4_a_broker_that_was_lost_is_filled_from_outbox_and_archive(house: House) -> None:
    """Of three parts of the past the outbox has lost the first, which the archive has; the archive never got the third."""
    house.variables["KEEPS"] = "0"
    house.start("orders", "billing", "mail")
    house.say(5)
    house.comes_to("mail", house.all_of_it())
    house.stop("billing", "mail")
    with house.archiving():
        house.say(5)
        house.archived(3 * 5 * len(KEYS))
    until(house.outbox_is_empty, "the outbox to let go", within=PATIENCE)
    house.stop("orders")
    del house.variables["KEEPS"]
    house.start("orders")
    house.say(5)
    until(lambda: house.in_the_log() == 15 * len(KEYS), "all to be sent", within=PATIENCE)
    house.stop("orders")
    house.broker.lose()
    began = time.monotonic()
    house.start("orders", "billing", "mail")
    house.say(1)
    said = house.types(blocks(4)[0])
    assert "25 events were applied by billing" in said, "what the outbox has no more, from the archive"
    assert "25 events sent again" in said, "what the archive never got, from the outbox"
    house.comes_to("billing", house.all_of_it())
    house.comes_to("mail", house.all_of_it())
    house.measured(4, began, house.missing("billing") + house.missing("mail"))
    house.settles()
    assert (house.done("billing"), house.done("mail")) == (house.all_of_it(), house.all_of_it())
