"""Secrets: what an application says about its secret fields."""

from __future__ import annotations

import os
from collections.abc import Collection

from posthouse.options import Count, Options, Seconds, SomeSeconds
from posthouse.trust.secrets.keys import check_keys
from posthouse.trust.secrets.masters import check_master

KEYS, MASTER, READS = "POSTHOUSE_SECRETS_KEYS", "POSTHOUSE_SECRETS_MASTER", "POSTHOUSE_SECRETS_READS"


class Secrets(Options):
    """Fields that are marked `Personal` leave encrypted, each under the key of the person it is about. Durations are seconds."""

    keys: str = ""
    """Where the keys are: sqlite:///keys.db for services of one host, postgresql://…/keys for a database of their own. Empty: as
    POSTHOUSE_SECRETS_KEYS says, else sqlite:///posthouse-keys.db."""
    master: str = ""
    """What wraps them: file:master.key, which is made for a key store without keys; env:NAME, 32 bytes in base64; aws-kms:alias/NAME;
    gcp-kms:projects/…/cryptoKeys/NAME. Empty: as POSTHOUSE_SECRETS_MASTER says, else file:posthouse-master.key."""
    reads: Collection[str] = ()
    """The kinds of personal data that handlers here see plain, as in ["contact"]; `*` is all. Of others they see a placeholder."""
    most: Count = 10_000
    """So many keys are in memory at once."""
    keep: Seconds = 300.0
    """For so long a key is used before it is fetched anew."""
    lease: SomeSeconds = 30.0
    """Without a word from the key store for so long, all keys in memory are forgotten. So long an erasure waits for a silent process."""
    patience: SomeSeconds = 3.0
    """How long one question to the key store, or to the master key, may take."""

    @property
    def keys_url(self) -> str:
        """Where the keys are."""
        return self.keys or os.environ.get(KEYS, "") or "sqlite:///posthouse-keys.db"

    @property
    def master_name(self) -> str:
        """What wraps them."""
        return self.master or os.environ.get(MASTER, "") or "file:posthouse-master.key"

    def conflicts(self) -> list[str]:
        problems = [*check_keys(self.keys_url), *check_master(self.master_name)]
        return [f"Secrets: {problem}" for problem in problems]


def secrets_of_environment() -> Secrets | None:
    """What POSTHOUSE_SECRETS_KEYS says, for an App that says nothing; None where nothing is said."""
    if not os.environ.get(KEYS):
        return None
    return Secrets(reads=[kind.strip() for kind in os.environ.get(READS, "").split(",") if kind.strip()])
