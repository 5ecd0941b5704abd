"""Secrets of a play: the keys of its guests, in a file that all services of it share."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from melmastoon.secrets import secrets_of
from posthouse import Secrets, Service

PATIENCE = 30.0
"""Real seconds to wait for a writer."""


def secrets_in(folder: Path, service: Service) -> Secrets:
    """What a service says is encrypted, under keys in the folder of the play."""
    return secrets_of(service.name, keys=f"sqlite:///{keys_file(folder)}", master=f"file:{folder / 'master.key'}")


def keys_file(folder: Path) -> Path:
    return folder / "keys.db"


def forget_process(folder: Path, pid: int) -> None:
    """Whoever killed a process knows that it has no keys any more: an erasure need not wait until its lease ends."""
    if not keys_file(folder).exists():
        return  # nobody had a key yet
    connection = sqlite3.connect(keys_file(folder), timeout=PATIENCE, isolation_level=None)
    with closing(connection), suppress(sqlite3.OperationalError):  # nor is there a table yet
        connection.execute("DELETE FROM posthouse_key_holder WHERE name LIKE ?", (f"% (process {pid})",))
