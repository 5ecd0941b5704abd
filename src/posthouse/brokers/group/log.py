"""PORT: what a log gives to a consumer group of ours. `GroupMember` is the `Stream` over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from posthouse.broker import Delivery
from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.group.window import Window


class Partition:
    """One partition in a member's hands, from the moment at which it took it. A seek, or the loss of the partition, ends it:
    acknowledgements of an old one find nobody. Frames are numbered 1, 2, 3 … without gaps. Logs add what they need to know."""

    hopes = True
    """Whether the log may have more than `stored` says, and `read` would find it."""

    def __init__(self, topic: str, number: int, epoch: int, window: Window) -> None:
        self.topic = topic
        self.number = number
        self.epoch = epoch
        """Changes with the owner and with every seek: whoever has another one holds nothing here."""
        self.window = window
        self.stored: int | None = None
        """The last number known to be there to read; None until the log was asked under this epoch."""
        self.doubtful = False
        """What is known of it may be wrong: nothing is handed out or committed before it was taken anew."""
        self.leaving_since: float | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.number

    @property
    def works(self) -> bool:
        """Whether anything of it may be handed out."""
        return self.leaving_since is None and not self.doubtful

    @property
    def waiting(self) -> bool:
        return self.works and self.stored is not None and self.window.waiting(self.stored)

    @property
    def cramped(self) -> bool:
        """The window is full, but would not be if the log had what was acknowledged."""
        window = self.window
        return window.committed < window.prefix and window.read >= window.committed + window.size

    def heard(self, stored: int) -> None:
        """What is there now. When it is the first time, nothing above it can have been handed out before."""
        if self.stored is None:
            self.window.touched = min(self.window.touched, stored)
            self.window.unsure = min(self.window.unsure, stored)
        self.stored = stored

    def ack(self, number: int) -> None:
        self.window.ack(number)

    def nack(self, number: int) -> None:
        self.window.nack(number)


P = TypeVar("P", bound=Partition)


Token = tuple[Partition, int]
"""Of a delivery: its partition, and its number there."""


class Want(NamedTuple, Generic[P]):
    """A run of numbers to read, or an empty one (`last` 0) to learn what is stored. `again`: they were handed back. A `hopeful`
    one is of numbers that may not be stored yet."""

    partition: P
    first: int = 1
    last: int = 0
    again: bool = False
    hopeful: bool = False

    @property
    def touched(self) -> int:
        """Numbers up to here come again."""
        return self.last if self.again else self.partition.window.touched


class Answer(NamedTuple):
    """The last number `stored`, and what is there of the numbers that were asked for, in order."""

    stored: int
    deliveries: Sequence[Delivery] = ()


class Owned(NamedTuple):
    owner: str | None
    epoch: int


class Group(NamedTuple):
    """How a group stands: every partition of the member's topics, and who of each topic lives, this member among them."""

    partitions: Mapping[TopicPartition, Owned]
    members: Mapping[str, Sequence[str]]
    version: int = 0
    """For the log: what a change of this is compared with."""


class Notifier(Protocol):
    """Counts news. It may miss some, so nobody relies on it alone."""

    async def wait(self, seen: int, seconds: float) -> int:
        """The count, as soon as it differs from `seen`, at the latest after `seconds`."""
        ...

    def wake(self) -> None:
        """Count one more, in this process."""
        ...


class GroupLog(Protocol[P]):
    """A log as one member of one group uses it. Every method may raise BrokerUnavailable.

    A partition belongs to an owner under an epoch, and the log itself compares both in every call: whoever was replaced, be
    it while it stood still, reads and changes nothing any more.
    """

    @property
    def me(self) -> str:
        """The member's name."""
        ...

    @property
    def notifier(self) -> Notifier:
        """Rings when there may be more to read, and when the group changed."""
        ...

    @property
    def polls(self) -> tuple[float, float]:
        """Seconds after which to look again though nothing rang: first, and at most."""
        ...

    @property
    def stale(self) -> bool:
        """Whether the group may have changed since `renew`."""
        ...

    async def renew(self, held: Mapping[TopicPartition, P]) -> Group:
        """Renew the member's lease for all topics at once, strike off whoever let it end, and tell how the group stands. The
        first time is a join: others hear of it. Partitions that must be taken anew become `doubtful`."""
        ...

    async def settle(
        self, group: Group, give: Sequence[P], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, P] | None:
        """Give partitions back, with what was acknowledged and handed out, and take others, each with a new epoch. What the
        one before may have had in hand counts as touched, unless it gave it back. Those that were taken; None when somebody
        changed the group meanwhile, so that this plan is out of date."""
        ...

    async def read(self, wants: Sequence[Want[P]]) -> Sequence[Answer | None]:
        """One answer for each, in their order; None where the partition is no longer this member's. With no wants it tells
        whether the group changed."""
        ...

    async def commit(self, held: Iterable[P], *, durable: bool) -> None:
        """Write what was acknowledged of these and is not written yet. Afterwards `window.committed` is the cursor as the log
        keeps it whatever crashes; a log that is faster without may wait with that for `durable`."""
        ...

    async def leave(self, held: Sequence[P]) -> None:
        """Give back all, and the membership; others hear of it. What was not acknowledged was not dealt with."""
        ...
