"""Settings of an audit log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import get_args

from posthouse.contracts.terms import Retention
from posthouse.errors import did_you_mean
from posthouse.options import Count, Options, Seconds, SomeSeconds

MIB = 2**20
PLACE, SECOND, KEYS = "POSTHOUSE_AUDIT", "POSTHOUSE_AUDIT_SECOND", "POSTHOUSE_AUDIT_KEYS"
PRIVATE, PRIVATE_FILE = "POSTHOUSE_AUDIT_PRIVATE", "POSTHOUSE_AUDIT_PRIVATE_FILE"
"""Variables of the environment: the two places, and the public file; private halves themselves, or the file that has them."""


class Audit(Options):
    """Keep what was said where nobody can touch it unseen."""

    place: str
    """Where the log is: a folder, `file:///srv/audit`, `s3://bucket/prefix`."""
    keys: str | PurePath
    """The public file of `posthouse keys`, with a key made by `--use audit`."""
    private: str | PurePath | None = None
    """The file with its private half. None: what the environment says in POSTHOUSE_AUDIT_PRIVATE_FILE or POSTHOUSE_AUDIT_PRIVATE;
    where there is none, events are logged here, and signed by whoever has it."""
    second: str | None = None
    """Where checkpoints and tiles are copied to, best where other people have the say: without it nobody sees that a log was made anew."""
    classes: Sequence[str] = ("cold",)
    """Events of these retention classes are logged, and what has no envelope that says its class."""
    types: Sequence[str] = ()
    """And those whose subject one of these patterns fits, whatever their class: `shop.orders.*`."""
    every: SomeSeconds = 86_400.0
    """Seconds from one checkpoint to the next: for so long what was logged can be touched unseen."""
    wait: Seconds = 5.0
    """Seconds that an event waits for others to be logged with it, at most."""
    batch: Count = 2_000
    """So many events are logged together, at most …"""
    batch_bytes: Count = 4 * MIB
    """… and so many bytes, about."""

    def conflicts(self) -> list[str]:
        known = get_args(Retention)
        same = self.second is not None and self.second.rstrip("/") == self.place.rstrip("/")
        return ["Audit: the second place is the first one: it would notice nothing"] * same + [
            f"Audit: there is no retention class {name!r}.{did_you_mean(name, known)}"
            for name in self.classes
            if name not in known
        ]


def audit_here() -> Audit | None:
    """What the environment says of an audit log; None where it says nothing."""
    if not (place := os.environ.get(PLACE, "").strip()):
        return None
    return Audit(place=place, second=os.environ.get(SECOND) or None, keys=os.environ.get(KEYS) or "keys.toml")
