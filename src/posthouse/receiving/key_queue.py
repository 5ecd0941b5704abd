"""The queue of a consumer: one event in flight per key, keys side by side, tenants in fair turns, bounded in total."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

W = TypeVar("W")


class KeyQueue(Generic[W]):
    """Work waits here until its key is free. Everything is a plain queue operation; nothing blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._ready: dict[str, deque[tuple[Hashable | None, W]]] = {}
        self._turns: deque[str] = deque()
        self._lines: dict[Hashable, deque[tuple[str, W]]] = {}

    @property
    def room(self) -> int:
        """How much more work may be put in; work in flight counts until it is done."""
        return self._capacity - self._size

    @property
    def ready(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._turns)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return self._size == 0

    def put(self, tenant: str, key: Hashable | None, work: W) -> None:
        """Line the work up behind earlier work of its key; key None waits for nobody."""
        self._size += 1
        if key is None:
            self._enable(tenant, None, work)
        elif key in self._lines:
            self._lines[key].append((tenant, work))
        else:
            self._lines[key] = deque()
            self._enable(tenant, key, work)

    def peek(self) -> W | None:
        """What `take` would give, or None."""
        return self._ready[self._turns[0]][0][1] if self._turns else None

    def take(self) -> tuple[Hashable | None, W]:
        """The next work, of the tenant whose turn it is. IndexError when nothing is ready."""
        tenant = self._turns.popleft()
        queue = self._ready[tenant]
        item = queue.popleft()
        if queue:
            self._turns.append(tenant)
        else:
            del self._ready[tenant]
        return item

    def following(self, key: Hashable | None) -> W | None:
        """What waits behind the work that was taken for this key, or None."""
        line = self._lines.get(key) if key is not None else None
        return line[0][1] if line else None

    def take_following(self, key: Hashable) -> W:
        """Take that as well: it runs after the first, in the same hands."""
        return self._lines[key].popleft()[1]

    def done(self, key: Hashable | None, count: int = 1) -> None:
        """The `count` works taken for this key are finished: the next of its line becomes ready."""
        self._size -= count
        if key is None:
            return
        line = self._lines[key]
        if line:
            self._enable(line[0][0], key, line.popleft()[1])
        else:
            del self._lines[key]

    def _enable(self, tenant: str, key: Hashable | None, work: W) -> None:
        if tenant not in self._ready:
            self._ready[tenant] = deque()
            self._turns.append(tenant)
        self._ready[tenant].append((key, work))
