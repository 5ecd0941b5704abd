"""Frozen files are replaced whole, and only when they say something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from posthouse.contracts.lock import LOCK
from posthouse.errors import ConfigurationError
from posthouse.frozen import lock_in
from posthouse.governance.bundle import Bundle
from posthouse.governance.folder import read_folder, write_folder

PATH = "orders/order/placed/v1.json"


def test_files_that_say_the_same_are_not_touched(tmp_path: Path) -> None:
    assert write_folder(tmp_path, {PATH: b"{}", LOCK: b"{}"}) == [PATH, LOCK]
    os.utime(tmp_path / PATH, (1, 1))
    assert write_folder(tmp_path, {PATH: b"{}", LOCK: b'{"version":1}'}) == [LOCK]
    assert (tmp_path / PATH).stat().st_mtime == 1
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


def test_a_replaced_file_is_a_new_one_with_the_rights_of_the_old(tmp_path: Path) -> None:
    write_folder(tmp_path, {PATH: b"{}"})
    file = tmp_path / PATH
    before = file.stat()
    assert before.st_mode & 0o777 == 0o666 & ~_umask()
    file.chmod(0o640)
    write_folder(tmp_path, {PATH: b"true"})
    assert file.stat().st_ino != before.st_ino, "written beside it and renamed"
    assert file.stat().st_mode & 0o777 == 0o640


def test_removing_the_last_file_removes_its_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, {PATH: b"{}", "orders/uploaded/v1.json": b"{}"})
    assert write_folder(tmp_path, {}, [PATH, "orders/gone/v1.json"]) == [PATH]
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == ["uploaded"]


def test_a_folder_that_is_not_there_is_an_empty_bundle(tmp_path: Path) -> None:
    assert read_folder(tmp_path / "none") == Bundle()
    with pytest.raises(ConfigurationError, match="posthouse catalog freeze"):
        lock_in(tmp_path / "none")


def test_other_files_may_lie_beside_the_frozen_ones(tmp_path: Path) -> None:
    write_folder(tmp_path, {PATH: b"{}"})
    (tmp_path / "README.md").write_bytes(b"\xff")
    (tmp_path / "orders" / ".v1.json.tmp").write_bytes(b"{")
    assert list(read_folder(tmp_path).schemas) == [PATH]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"cannot write .*orders"):
        write_folder(tmp_path, {PATH: b"{}"})


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
