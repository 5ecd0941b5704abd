"""The page on the archive: what it tells DuckDB to do reads each event once, also after files were compacted."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.history.archive.compacting import Compactor
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.places import open_place
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import NAME, member, published, until_archived

PAGE = Path(__file__).parents[2] / "docs" / "archive.md"


async def test_what_the_page_tells_duckdb_reads_each_event_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store, broker, place = (
        SqliteStore(":memory:", clock=clock),
        MemoryBroker(clock=clock),
        open_place(f"file://{tmp_path}"),
    )
    await store.upgrade()
    for turn in range(3):
        await published(broker, 6, first=6 * turn)
        await until_archived(broker, clock, member(broker, place, store.archives, clock), step=0.001)
    sql = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    assert _asked(sql) == 36
    journal = Journal(NAME, place, store.archives, clock, "compactor")
    await journal.open()
    await Compactor(NAME, place, store.archives, journal, clock, ArchiveSettings(compact_from=2)).tidy()
    assert len(journal.manifest.gone) == 3
    assert _asked(sql) == 36
    await store.aclose()


def _asked(sql: str) -> int:
    with duckdb.connect() as database:
        statements = [each for each in sql.split(";") if each.strip()]
        for statement in statements[:-1]:
            database.execute(statement)
        return sum(int(row[1]) for row in database.execute(statements[-1]).fetchall())
