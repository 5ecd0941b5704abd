"""File checks: whether a SQLite file lies where, and is opened as, it must be to keep what was committed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile

from posthouse.checks import Check, judged
from posthouse.local.sqlite import (
    MIB,
    NETWORK_FILESYSTEMS,
    OLDEST,
    WAL_RACE_FIXED,
    Synchronous,
    connect,
    filesystem_of,
    mapped,
)

LITTLE_ROOM = 512 * MIB
LONG_WAL = 256 * MIB


def file_checks(path: Path, synchronous: Synchronous, *, today: bool) -> list[Check]:
    """Version, place and modes; with `today` also sizes and room. A file that is not there yet is not made."""
    checks = [version_check(sqlite3.sqlite_version_info[:3]), filesystem_check(filesystem_of(path))]
    if why := _unwritable(path):
        return [
            *checks,
            Check(name="file", found=why, judgement="fail", fix="give the process the right to write there"),
        ]
    if not path.exists():
        return [*checks, Check(name="file", found=f"{path} is not there yet: it is made at the first start")]
    checks += _modes(path, synchronous)
    if today:
        checks += [_wal(path), _room(path)]
    return checks


def version_check(version: tuple[int, ...]) -> Check:
    """Old ones lack what we use, others have a race that one checkpointer at a time makes unlikely."""
    return judged(
        "SQLite",
        ".".join(map(str, version)),
        wrong=version < WAL_RACE_FIXED,
        as_="fail" if version < OLDEST else "warn",
        fix="3.51.3 mends a very rare race when the WAL is reset: use a Python with it; until then one process at a time "
        "is let to empty the WAL",
    )


def filesystem_check(kind: str) -> Check:
    """SQLite's locks and its shared memory need one kernel."""
    return judged(
        "filesystem",
        kind or "unknown",
        wrong=kind in NETWORK_FILESYSTEMS,
        as_="fail",
        fix="SQLite's locks do not hold on a network filesystem: use a local disk or PostgreSQL",
    )


def _unwritable(path: Path) -> str:
    """Why nothing could be written there, also by the log beside the file; empty when it could. Nothing stays behind."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        return f"the folder {path.parent} cannot be written: {error.strerror}"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"{path} cannot be written by this user"
    return ""


def _modes(path: Path, synchronous: Synchronous) -> list[Check]:
    with mapped(f"looking at {path}"), closing(connect(path, synchronous=synchronous)) as connection:
        journal, sync, mapped_bytes = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "mmap_size")
        )
    lost = "a power cut may undo the last commits: leave synchronous=NORMAL out of the URL"
    return [
        judged(
            "journal_mode", journal, wrong=journal != "wal", as_="fail", fix="this place takes no WAL: use a local disk"
        ),
        judged("synchronous", "FULL" if sync >= 2 else "NORMAL", wrong=sync < 2, fix=lost),
        judged("mmap_size", str(mapped_bytes), wrong=mapped_bytes != 0, fix="set it to 0: it makes the WAL race worse"),
    ]


def _wal(path: Path) -> Check:
    wal = Path(f"{path}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    return judged(
        "size",
        f"{path.stat().st_size / MIB:,.1f} MiB, and {size / MIB:,.1f} MiB of WAL",
        wrong=size > LONG_WAL,
        fix="a reader that stays open keeps the WAL from being emptied: look for one",
    )


def _room(path: Path) -> Check:
    free = shutil.disk_usage(os.path.realpath(path.parent)).free
    fix = "free some space: a full disk refuses events, with StoreFull"
    return judged("room", f"{free / MIB:,.0f} MiB are free", wrong=free < LITTLE_ROOM, fix=fix)
