"""What the tests do over and over."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from posthouse.sending.synchronous import drive, join_now
from posthouse.store import HeldEvent, InboxEntry, KeyPosition, OutboxRow, Store, Transaction
from posthouse.testing.store_contract.samples import CONSUMER


@contextlib.asynccontextmanager
async def failing(
    store: Store, end: BaseException | None = None, *, lazily: bool = False
) -> AsyncIterator[Transaction]:
    """A transaction whose block ends with an error, which goes no further."""
    error = end or ZeroDivisionError()
    with contextlib.suppress(type(error)):
        async with store.begin(lazily=lazily) as tx:
            yield tx
            raise error


async def add(store: Store, *rows: OutboxRow) -> int:
    """Rows in a transaction of their own; how many."""
    async with store.begin() as tx:
        return len(await store.outbox.append(tx, rows))


def append_now(store: Store, theirs: object, rows: Sequence[OutboxRow]) -> Sequence[str]:
    """Rows in a transaction of theirs, without an event loop; the event ids that stand for them."""
    return drive(store.outbox.append(join_now(store, theirs), rows))


async def drain(store: Store, owner: str = "a") -> list[OutboxRow]:
    """Everything in the shards of a relay, read and settled."""
    shards = await store.outbox.lease(owner, 10)
    found: list[OutboxRow] = []
    while (poll := await store.outbox.poll(shards, 50)).rows:
        found += poll.rows
        assert await store.outbox.settle(owner, poll, [])
    return found


async def claim(store: Store, one: InboxEntry, *, consumer: str = CONSUMER, lazily: bool = False) -> bool:
    async with store.begin(lazily=lazily) as tx:
        return (await store.inbox.claim(tx, consumer, [one]))[0]


async def standing(store: Store, one: InboxEntry) -> KeyPosition:
    async with store.begin() as tx:
        head = await store.inbox.position_of(tx, CONSUMER, one)
    assert isinstance(head, KeyPosition)
    return head


async def hold(store: Store, *events: HeldEvent) -> bool:
    async with store.begin() as tx:
        return all([await store.held.hold(tx, event) for event in events])
