"""Whoever asks an archive reads its files: he reads no other, and writes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.errors import ConfigurationError
from posthouse.history.archive.places import Place, open_place
from posthouse.history.archive.querying import query

COUNT = "SELECT count(*) AS n FROM events"


class Away:
    """A place that is no folder, as a bucket is none: its files come through this process."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __getattr__(self, name: str) -> object:
        return getattr(self._place, name)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, archive: Path) -> Place:
    found = open_place(f"file://{archive}")
    return found if request.param == "folder" else Away(found)  # type: ignore[return-value]  # all that it is asked it has


def test_a_question_is_answered(place: Place) -> None:
    assert query(place, COUNT) == (["n"], [(54,)])
    names, rows = query(place, f"WITH asked AS ({COUNT}) SELECT * FROM asked")
    assert (names, rows) == (["n"], [(54,)])


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet)",
        "COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
        "SELECT * FROM query('COPY (SELECT 1 AS a) TO ''{file}'' (FORMAT parquet)')",
        "SELECT 1; COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
        "ATTACH '{folder}/other.db'",
        "SET enable_external_access = true",
        "SELECT content FROM read_text('{folder}/master.key')",
        "SELECT * FROM read_csv('{folder}/master.key')",
        "SELECT * FROM '{folder}/master.key'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_text('http://127.0.0.1:9/')",
        "INSTALL httpfs",
        "SELECT * FROM manifest",
        "",
    ],
)
def test_nothing_else_is_read_and_nothing_is_written(place: Place, archive: Path, sql: str) -> None:
    (archive.parent / "master.key").write_text("hush")
    file = next((archive / "data").rglob("*.parquet"))
    before = {path: path.read_bytes() for path in archive.parent.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError):
        query(place, sql.format(file=file, folder=archive.parent))
    assert {path: path.read_bytes() for path in archive.parent.rglob("*") if path.is_file()} == before
    assert query(place, COUNT)[1] == [(54,)]


def test_one_that_is_empty_is_asked_too(tmp_path: Path) -> None:
    assert query(open_place(f"file://{tmp_path}"), COUNT) == (["n"], [(0,)])
