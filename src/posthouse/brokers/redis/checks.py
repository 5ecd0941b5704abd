"""Checks: whether the server is set up to keep what it was given. Pure: settings in, findings out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from posthouse.checks import Check, judged

LEAST = (7, 0)
FULL = 0.8
"""Of the memory: then it is time to look."""
Sync = Literal["always", "default"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says of itself. `config` is empty where it may not be asked for."""

    info: Mapping[str, str]
    config: Mapping[str, str]
    sync: Sync

    @property
    def version(self) -> tuple[int, int]:
        major, minor, *_ = (*self.info.get("redis_version", "0.0").split("."), "0")
        return int(major), int(minor)

    @property
    def evicts(self) -> bool:
        """Whether it deletes keys of its own choice when memory is short: ours never expire."""
        policy = self.config.get("maxmemory-policy") or self.info.get("maxmemory_policy", "noeviction")
        return policy.startswith("allkeys")

    @property
    def durable(self) -> bool:
        """An answer is given only when the disk has it, and nothing is deleted to make room."""
        return not self.evicts and (self.sync == "always" or self._synced)

    @property
    def _synced(self) -> bool:
        return self.config.get("appendonly") == "yes" and self.config.get("appendfsync") == "always"

    def checks(self, *, today: bool) -> list[Check]:
        """One finding for each setting that the promise rests on."""
        checks = [self._server(), self._place(), self._durability(), self._eviction(), self._failover()]
        return [*checks, self._memory()] if today else checks

    def _server(self) -> Check:
        return judged(
            "server",
            f"Redis {self.info.get('redis_version', '?')}",
            wrong=self.version < LEAST,
            as_="fail",
            fix="needs 7.0 or later: upgrade the server",
        )

    def _place(self) -> Check:
        role, cluster = self.info.get("role", "?"), self.info.get("cluster_enabled") == "1"
        return judged(
            "place",
            f"{role}{', part of a cluster' if cluster else ''}",
            wrong=role != "master" or cluster,
            as_="fail",
            fix="frames can be stored on a master that is not part of a cluster only: name that one in the URL",
        )

    def _durability(self) -> Check:
        found = "the server does not say"
        if self.config:
            found = f"appendonly {self.config.get('appendonly')}, appendfsync {self.config.get('appendfsync')}"
        if self.sync == "always":
            found += "; declared: always"
        return judged(
            "durability",
            found,
            wrong=not (self._synced or self.sync == "always"),
            fix="an accepted frame may be lost when the server stops: set appendonly yes and appendfsync always"
            + ("" if self.config else ", and say sync=always in the URL"),
        )

    def _eviction(self) -> Check:
        policy = self.config.get("maxmemory-policy") or self.info.get("maxmemory_policy", "noeviction")
        limited = self.info.get("maxmemory", "0") != "0"
        return judged(
            "eviction",
            policy,
            wrong=self.evicts,
            as_="fail" if limited else "warn",
            fix="a server that is short of memory deletes whole topics: set maxmemory-policy noeviction",
        )

    def _failover(self) -> Check:
        replicas = int(self.info.get("connected_slaves", "0"))
        return judged(
            "failover",
            f"{replicas} replica(s)",
            wrong=replicas > 0,
            fix="a replica that takes over may lack the last frames: bring the master back rather than promote one",
        )

    def _memory(self) -> Check:
        used, limit = int(self.info.get("used_memory", "0")), int(self.info.get("maxmemory", "0"))
        share = used / limit if limit else 0.0
        return judged(
            "memory",
            f"{used / 2**20:,.0f} MiB of {f'{limit / 2**20:,.0f} MiB' if limit else 'what the machine has'}",
            wrong=share > FULL,
            fix="a full server refuses frames: shorten the retention, look for groups that nobody reads, or add memory",
        )
