"""The keys of a process are its own: whoever erases waits for each process that may have one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.errors import SecretsUnavailable
from posthouse.trust.secrets.keys.sqlite import SqliteKeys

PROGRAM = """
import asyncio, os
from pathlib import Path
from posthouse.trust.secrets.keyring import Keyring
from posthouse.trust.secrets.keys import open_keys
from posthouse.trust.secrets.masters import open_master

def opened():
    return open_keys("sqlite:///keys.db", 5.0), open_master("file:master.key", 5.0)

ring = Keyring("shop", opened, most=10, keep=60.0, lease=30.0)

async def have():
    await ring.fetch("t1", ["g1"], make=True)

asyncio.run(opened()[0].begin())
if {first}:
    asyncio.run(have())
if (child := os.fork()) == 0:
    inherited = ring.known("t1", "g1") is not None
    asyncio.run(have())
    os._exit(7 if inherited else 0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
asyncio.run(have())

async def told():
    holders = await opened()[0].holders()
    named = sorted(one.name for one in holders) == sorted(f"shop (process {{pid}})" for pid in (os.getpid(), child))
    print(code, len(holders), named)

asyncio.run(told())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("first", [False, True], ids=["opened before", "with a key before"])
def test_the_child_of_a_fork_is_a_holder_of_its_own(tmp_path: Path, first: bool) -> None:
    program = PROGRAM.format(first=first)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 2 True\n", done.stderr


async def test_whoever_opens_a_file_that_somebody_else_is_opening_waits(tmp_path: Path) -> None:
    """The first of all makes its tables, and turns it to another way of writing: nobody else gets in meanwhile."""
    with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None, check_same_thread=False)) as first:
        first.execute("BEGIN EXCLUSIVE")
        keys = SqliteKeys(tmp_path / "keys.db", 20.0)
        opening = asyncio.create_task(keys.present())
        await asyncio.sleep(0.3)
        assert not opening.done()
        first.execute("ROLLBACK")
        await asyncio.wait_for(opening, 20.0)
    assert await keys.erased() == []
    await keys.aclose()


async def test_it_waits_no_longer_than_its_patience(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as first:
        first.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SecretsUnavailable, match="locked"):
            await SqliteKeys(tmp_path / "keys.db", 0.2).present()
