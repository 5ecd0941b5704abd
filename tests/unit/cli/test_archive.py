"""`posthouse archive`: what people see of an archive, and the codes that programs see."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posthouse.app import App
from posthouse.cli import app as cli
from tests.kit.waiting import eventually

SHOP = """
from posthouse import App, Payload, Service
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.settings import Settings

shop = Service("shop")

class OrderPlaced(Payload):
    order_id: str

shop.event("order.placed.v1", key="order_id")(OrderPlaced)
app = App(shop, archive="file://{folder}/archive", settings=Settings(archive=ArchiveSettings(every=0.1)))
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A target whose ten events are archived."""
    monkeypatch.chdir(tmp_path)
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP.format(folder=tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(name)
    asyncio.run(_archived(module.app, module.OrderPlaced))
    yield f"{name}:app"
    sys.modules.pop(name, None)


async def _archived(app: App, placed: type) -> None:
    async with app.running():
        async with app.services[0].transaction(tenant="t1") as tx:
            for number in range(10):
                tx.publish(placed(order_id=f"o{number % 2}"))
        archive = app.archive
        assert archive is not None
        await eventually(archive.reach, pause=0.05)


def run(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, ["archive", *words], catch_exceptions=False)
    return found.exit_code, found.output


def test_status_says_how_far_it_is(shop: str) -> None:
    code, said = run("status", shop)
    assert code == 0
    assert "shop.order" in said
    code, said = run("status", shop, "--json")
    (topic,) = json.loads(said)["topics"]
    assert (topic["reach"]["events"], topic["pending"], topic["lost"]) == (10, 0, False)


def test_verify_finds_a_log_that_was_cut_by_what_the_database_knows(shop: str, tmp_path: Path) -> None:
    last = max((tmp_path / "archive" / "log").iterdir())
    last.unlink()
    code, said = run("verify", shop)
    assert code == 1
    assert f"log: log/{last.name}: it is missing: the database knows entries up to" in said


def test_verify_ends_with_a_code_and_names_what_is_wrong(shop: str, tmp_path: Path) -> None:
    assert run("verify", shop)[0] == 0
    assert "sound: 10 events in 1 file" in run("verify", f"file://{tmp_path}/archive")[1]
    (file,) = (tmp_path / "archive" / "data").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    code, said = run("verify", shop)
    assert code == 1
    assert file.name in said
    assert "not sound" in said
    code, said = run("verify", shop, "--json")
    assert (code, json.loads(said)["sound"]) == (1, False)


def test_query_asks_what_is_live(shop: str) -> None:
    code, said = run("query", shop, "SELECT key, count(*) AS n FROM events GROUP BY key ORDER BY key", "--json")
    assert (code, json.loads(said)) == (0, [{"key": "o0", "n": 5}, {"key": "o1", "n": 5}])


def test_expire_counts_first_and_lets_go_only_when_it_is_told(shop: str, tmp_path: Path) -> None:
    entry = tmp_path / "archive" / "log" / f"{1:020d}.json"
    (file,) = (tmp_path / "archive" / "data").rglob("*.parquet")
    old = file.parent.with_name("2001-01-01") / file.name
    old.parent.mkdir()
    file.rename(old)
    entry.write_bytes(entry.read_bytes().replace(file.parent.name.encode(), b"2001-01-01"))
    assert json.loads(run("expire", shop, "--older-than", "hot=30d", "--dry-run", "--json")[1])[0]["events"] == 10
    assert run("verify", shop)[0] == 0
    assert run("expire", shop, "--older-than", "warm=1d", "--older-than", "hot=1y", "--yes", "--why", "the law")[0] == 0
    code, said = run("verify", shop)
    assert (code, "sound: 0 events in 0 files" in said) == (0, True)
    assert "archive expire" in CliRunner().invoke(cli, ["actions", shop.split(":")[0]]).output


@pytest.mark.parametrize("age", ["hot", "hot=30", "lukewarm=30d", "hot=-1d"])
def test_an_age_that_is_none_is_answered_with_how_to_write_it(shop: str, age: str) -> None:
    found = CliRunner().invoke(cli, ["archive", "expire", shop, "--older-than", age])
    assert found.exit_code == 2
    assert "hot=30d, warm=1y, cold=7y" in found.output


def test_the_archive_alone_is_not_run_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "bare_of_archives.py").write_text("from posthouse import Service\nbare = Service('bare')\n")
    found = CliRunner().invoke(cli, ["run", "bare_of_archives:bare", "--only", "archive"])
    assert found.exit_code == 2
    assert "bare has no archive to write" in found.output
