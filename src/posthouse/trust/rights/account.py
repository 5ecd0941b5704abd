"""Account: what the account of one service at a broker must be allowed, in the words of no broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

Files = Mapping[str, str]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is that of the account, the service's unless it was told otherwise. `writes` are topics that it makes and publishes to,
    `dead` those of dead letters that it does the same with; `reads` topics by consumer group, `models` the consumers of read models:
    each generation has a group `<model>.g<number>` of its own. `foreign`: it belongs to another maker's tool, which only publishes."""

    name: str
    writes: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = {}
    models: Mapping[str, tuple[str, ...]] = {}
    foreign: bool = False

    @property
    def published(self) -> list[str]:
        """Every topic that it publishes to."""
        return sorted({*self.writes, *self.dead})

    @property
    def read(self) -> list[str]:
        """Every topic that it reads."""
        return sorted({topic for topics in (*self.reads.values(), *self.models.values()) for topic in topics})

    @property
    def places(self) -> list[tuple[str, str]]:
        """Groups with the topics in which each reads."""
        return sorted((group, topic) for group, topics in self.reads.items() for topic in topics)


def merged(accounts: Iterable[Account]) -> list[Account]:
    """One for each name: services may share one."""
    found: dict[str, Account] = {}
    for one in accounts:
        known = found.get(one.name)
        if known is None:
            found[one.name] = one
            continue
        found[one.name] = Account(
            name=one.name,
            writes=_both(known.writes, one.writes),
            dead=_both(known.dead, one.dead),
            reads={**known.reads, **one.reads},
            models={**known.models, **one.models},
            foreign=known.foreign and one.foreign,
        )
    return [found[name] for name in sorted(found)]


def _both(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*first, *second}))
