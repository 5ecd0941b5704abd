"""SqsStream: one member of a group. SQS chooses which message groups it gets, and gives none of them to two at a time.

A message group is blocked as long as one of its messages is in somebody's hands. So a key's order holds as long as
whatever is handed back takes all with it that came after: see `nack`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from posthouse.broker import Delivery
from posthouse.brokers.background import Background
from posthouse.brokers.handing import handed
from posthouse.brokers.sqs.client import Client
from posthouse.brokers.sqs.messages import Message, frame_of
from posthouse.brokers.sqs.publishing import Failure
from posthouse.brokers.sqs.topics import Queue
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable

TOGETHER = 10
"""Messages that one call gives, deletes or hands back."""
SIDE_BY_SIDE = 8
"""Polls of one queue at the same time, at most."""
AGAIN = 1.0
"""Seconds after which SQS is told again what it did not hear."""
SYSTEM = ["ApproximateReceiveCount", "SentTimestamp", "SequenceNumber", "MessageGroupId", "MessageDeduplicationId"]


class Received(msgspec.Struct, frozen=True):
    messages: list[Message] = msgspec.field(name="Messages", default_factory=list)


class Failures(msgspec.Struct, frozen=True):
    """What a batch of deletions or of changes answers for those that failed."""

    failed: list[Failure] = msgspec.field(name="Failed", default_factory=list)


class Receipt(msgspec.Struct, frozen=True):
    """The token of a delivery: what deletes it, and whose order it is part of."""

    queue: Queue
    handle: str
    group: str

    @property
    def place(self) -> tuple[Queue, str]:
        """What is blocked while it is in somebody's hands."""
        return self.queue, self.group


class SqsStream:
    """`visibility`: whole seconds after which what fell silent in our hands goes to others; renewed every quarter of it.
    `poll`: whole seconds that one request waits for messages; it outlives the `receive` that began it."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[Queue],
        *,
        clock: Clock,
        window: int,
        visibility: int,
        poll: int,
        on_close: Callable[[SqsStream], None],
    ) -> None:
        self._client = client
        self._queues = queues
        self._clock = clock
        self._window = window
        self._visibility = visibility
        self._poll = poll
        self._on_close = on_close
        self._until: dict[Receipt, float] = {}
        """Everything in our hands, and when it goes to others unless it is renewed."""
        self._owed: dict[Receipt, float] = {}
        """What was acknowledged and SQS did not delete, and until when that can be said again. It is not renewed."""
        self._ready: deque[Delivery] = deque()
        """What of it was not yet handed out."""
        self._in_hand: Counter[Queue] = Counter()
        self._asked: Counter[Queue] = Counter()
        self._width = dict.fromkeys(queues, 1)
        """Polls of each queue that may be on their way together: more while they come back full, one when empty."""
        self._polls: set[asyncio.Task[None]] = set()
        self._trouble: BrokerError | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._closed = asyncio.Event()
        self._background = Background()
        self._background.start(self._renew_for_ever(), self._pay_for_ever())

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)
        deadline = self._clock.monotonic() + wait
        while not self._closed.is_set():
            self._background.check()
            self._arrived.clear()
            if deliveries := self._take(limit):
                return deliveries
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble
            self._ask(limit)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return []
            await self._clock.wait(self._arrived, left)
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """What went to others meanwhile is theirs to acknowledge: SQS refuses our receipt for it. What SQS did not hear is
        said again, with the next ones and every second, until it comes again by itself."""
        self._background.check()
        receipts = self._mine(deliveries, self._owed)
        failed = await self._delete(receipts)
        reasons = [failed[receipt] for receipt in receipts if receipt in failed]
        if reasons:
            raise BrokerUnavailable(f"SQS did not delete {len(reasons)} messages: {reasons[0]}")

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        """With what waits here of the same keys: it must not overtake."""
        receipts = self._mine(deliveries)
        places = {receipt.place for receipt in receipts}
        waiting = [receipt for receipt in self._waiting() if receipt.place in places]
        await self._hand_back([*receipts, *waiting])

    async def aclose(self) -> None:
        """Hands everything back, then waits for the polls on their way, and hands back what they bring."""
        self._leaving = self._leaving or asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        self._closed.set()
        self._arrived.set()
        await self._background.aclose()
        await self._pay()
        await self._hand_back(list(self._until))
        if self._polls:
            await asyncio.wait(self._polls)
        self._on_close(self)

    # Polling

    def _ask(self, limit: int) -> None:
        """Start polls for what is wanted. One waits for messages; those beside it take what is there."""
        for queue in self._queues:
            while True:
                room = self._window - self._in_hand[queue] - self._asked[queue]
                count = min(TOGETHER, room, limit - self._asked[queue])
                polls = sum(1 for task in self._polls if task.get_name() == queue.url)
                if count <= 0 or polls >= self._width[queue]:
                    break
                self._asked[queue] += count
                task = asyncio.create_task(self._poll_once(queue, count, 0 if polls else self._poll), name=queue.url)
                self._polls.add(task)
                task.add_done_callback(self._polls.discard)

    async def _poll_once(self, queue: Queue, count: int, seconds: int) -> None:
        asked_at = self._clock.monotonic()
        try:
            received = await self._client.call(
                "poll",
                "receive_message",
                Received,
                QueueUrl=queue.url,
                MaxNumberOfMessages=count,
                WaitTimeSeconds=seconds,
                VisibilityTimeout=self._visibility,
                MessageSystemAttributeNames=SYSTEM,
                MessageAttributeNames=["All"],
                ReceiveRequestAttemptId=new_id(),
            )
            self._keep(queue, received.messages, asked_at)
            if len(received.messages) == count:
                self._width[queue] = min(2 * self._width[queue], SIDE_BY_SIDE)
            elif not received.messages:
                self._width[queue] = 1
            if self._closed.is_set():
                await self._hand_back(list(self._until))
        except BrokerError as error:
            self._trouble = error
        except Exception as error:  # or a poll would fail again and again, and nobody would hear of it
            self._trouble = BrokerUnavailable(f"SQS, receiving: {type(error).__name__}: {error}")
        finally:
            self._asked[queue] -= count
            self._arrived.set()

    def _keep(self, queue: Queue, messages: Sequence[Message], asked_at: float) -> None:
        for message in messages:
            system = message.system
            receipt = Receipt(queue, message.receipt, system.get("MessageGroupId", ""))
            self._until[receipt] = asked_at + self._visibility
            self._in_hand[queue] += 1
            self._ready.append(
                handed(
                    partial(frame_of, queue.topic, message),
                    topic=queue.topic,
                    body=message.body,
                    position=int(system.get("SequenceNumber", 0)),
                    stored_at=int(system["SentTimestamp"]) / 1000,
                    redelivered=int(system["ApproximateReceiveCount"]) > 1,
                    token=receipt,
                )
            )

    def _take(self, limit: int) -> list[Delivery]:
        """What waited so long that others may have it by now is left to them, with all that follows of its key."""
        now = self._clock.monotonic()
        late = {receipt.place for receipt in self._waiting() if now >= self._until.get(receipt, now)}
        if late:
            self._let_go([receipt for receipt in self._waiting() if receipt.place in late])
            self._forget_settled()
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    # What is in our hands

    def _mine(self, deliveries: Iterable[Delivery], owed: Collection[Receipt] = ()) -> list[Receipt]:
        """Each once, and none that was settled before."""
        receipts = dict.fromkeys(map(_receipt, deliveries))
        return [receipt for receipt in receipts if receipt in self._until or receipt in owed]

    def _waiting(self) -> list[Receipt]:
        return [_receipt(delivery) for delivery in self._ready]

    def _let_go(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            if self._until.pop(receipt, None) is not None:
                self._in_hand[receipt.queue] -= 1
        self._arrived.set()  # there may be room for more

    def _forget_settled(self) -> None:
        self._ready = deque(delivery for delivery in self._ready if _receipt(delivery) in self._until)

    async def _delete(self, receipts: Sequence[Receipt]) -> dict[Receipt, str]:
        """With what is owed. They are not ours from now on, whatever SQS answers: whoever is done with a message and renews it
        would hold up its key for ever. Gives those that failed."""
        now = self._clock.monotonic()
        until = {receipt: end for receipt, end in self._owed.items() if end > now}
        until |= {receipt: self._until[receipt] for receipt in receipts if receipt in self._until}
        self._owed = {}
        self._let_go(receipts)
        failed = await self._change("delete_message_batch", list(until), {})
        self._owed |= {receipt: until[receipt] for receipt in failed}
        return failed

    async def _pay_for_ever(self) -> None:
        while not await self._clock.wait(self._closed, AGAIN):
            await self._pay()

    async def _pay(self) -> None:
        """Say again what is owed. What is refused for good comes again by itself, and whoever acknowledges it then is told."""
        if self._owed:
            with contextlib.suppress(BrokerError):
                await self._delete([])

    async def _hand_back(self, receipts: Sequence[Receipt]) -> None:
        """They are not ours from now on, whatever SQS answers: without a renewal they come again by themselves."""
        self._let_go(receipts)
        self._forget_settled()
        await self._change("change_message_visibility_batch", receipts, {"VisibilityTimeout": 0})

    async def _renew_for_ever(self) -> None:
        while not await self._clock.wait(self._closed, self._visibility / 4):
            with contextlib.suppress(BrokerUnavailable):  # there is another turn before it is too late
                await self._renew()

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        old = [receipt for receipt, until in self._until.items() if until < now + self._visibility * 0.75]
        lost: dict[Receipt, str] = {}
        failed = await self._change(
            "change_message_visibility_batch", old, {"VisibilityTimeout": self._visibility}, lost=lost
        )
        for receipt in old:
            if receipt in self._until and receipt not in failed and receipt not in lost:
                self._until[receipt] = now + self._visibility
        places = {receipt.place for receipt in lost if receipt in self._until}  # others were deleted meanwhile
        self._let_go([*lost, *(receipt for receipt in self._waiting() if receipt.place in places)])
        self._forget_settled()

    async def _change(
        self,
        operation: str,
        receipts: Sequence[Receipt],
        how: dict[str, int],
        *,
        lost: dict[Receipt, str] | None = None,
    ) -> dict[Receipt, str]:
        """Delete, hand back or renew, ten at a time and side by side. Gives those for which SQS had trouble, with its
        reason; `lost` collects those that are not ours any more."""
        batches: list[tuple[Queue, list[Receipt]]] = []
        for queue in self._queues:
            of_queue = [receipt for receipt in receipts if receipt.queue == queue]
            batches += [(queue, of_queue[n : n + TOGETHER]) for n in range(0, len(of_queue), TOGETHER)]
        calls = (
            self._client.call(
                "sqs",
                operation,
                Failures,
                QueueUrl=queue.url,
                Entries=[{"Id": str(n), "ReceiptHandle": receipt.handle, **how} for n, receipt in enumerate(batch)],
            )
            for queue, batch in batches
        )
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failed: dict[Receipt, str] = {}
        for (_, batch), outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, BrokerUnavailable):
                failed.update(dict.fromkeys(batch, str(outcome)))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                for failure in outcome.failed:
                    which = lost if failure.senders_fault else failed
                    if which is not None:
                        which[batch[int(failure.id)]] = f"{failure.code}: {failure.message}"
        return failed


def _receipt(delivery: Delivery) -> Receipt:
    assert isinstance(delivery.token, Receipt)
    return delivery.token
