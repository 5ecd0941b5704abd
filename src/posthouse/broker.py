"""PORT: a broker moves frames between services. It decodes nothing, retries nothing and counts nothing.

The whole contract is on this page; `posthouse.testing.broker_contract.BrokerContract` proves an adapter against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.checks import Check


class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes on their way to one topic.

    `id` is the event's id, for brokers that drop repeats. `key` is the ordering key (`tenant:key`): frames of one topic
    and key stay in order; None means no order is needed. Header names are lower-case ASCII.
    """

    topic: str
    id: str
    body: bytes
    key: str | None = None
    headers: Mapping[str, str] = {}


class Verdict(msgspec.Struct, frozen=True):
    """What became of one frame. A refused frame was not stored; `final` means that the same frame never will be."""

    accepted: bool
    reason: str = ""
    final: bool = False


ACCEPTED = Verdict(True)


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One frame handed to a consumer group.

    `position` orders the topic's frames and is what `seek` takes. `stored_at` is when the broker accepted the frame
    (seconds since 1970). `redelivered` is True when the frame may have been handed out before and not acknowledged:
    it may be True too often, never too rarely. A member that died puts in doubt only what was stored by the time that
    another took over: each doubt costs a handler one of its attempts. `token` belongs to the adapter. `defect` says why no
    frame could be made of what the broker has; then `frame` has what is left of it, under its place as its id, and it is
    acknowledged like any other: `Stream.receive` never raises because of one record.
    """

    frame: Frame
    position: int | str
    stored_at: float
    redelivered: bool = False
    token: object = None
    defect: str = ""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker can promise. The promise that Posthouse prints is computed from this sheet."""

    name: str
    durable_ack: bool
    """An accepted frame survives a crash of the broker's machine."""
    ordered_publish: bool
    """Frames of one key are stored in the order in which `publish` was given them."""
    ordered_redelivery: bool
    """Frames that come again come in order per key."""
    fence: bool = False
    """A publisher that lost its lease is refused by the broker itself."""
    native_dedup_s: float = 0.0
    """Seconds for which a repeated frame id is dropped; 0 means never."""
    history: bool = True
    """A new group reads what was stored before it was made. Where False it begins with what comes afterwards, and its
    `Progress.truncated` is always True."""
    seek: bool = False
    native_dlq: bool = False
    delay: bool = False
    binary_body: bool = True
    max_bytes: int = 8 * 1024 * 1024
    """The largest frame (headers and body together)."""
    header_limit: int | None = None
    """The largest number of headers; None means no limit."""
    retains_unacked: bool = True
    """Retention waits for the slowest group. Where False, what is older than `redelivery_s` is gone, read or not."""
    redelivery_s: float = 0.0
    """The longest time after which a frame may still come again; inbox retention must be longer."""
    announces: bool = False
    """Its readers route by headers: events tell type, version, tenant and idempotency key there too, whatever their format."""
    region: str = ""
    """Where it keeps what is published, as its provider calls it; empty where nobody told it."""
    notes: tuple[str, ...] = ()
    """What start-up checks found that weakens the promise, one sentence each."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in a topic. `stored` counts frames ever stored, `pending` those not yet acknowledged by it.

    `truncated` is True when retention or the group's starting point hid older frames from it. `dropped`: frames that it
    had still to read are gone. `whole`: it began with the first frame ever stored, so that whatever is hidden from it was
    taken from it. `behind` is `pending` of each partition, in one order for all groups; None where the broker
    does not tell. A broker without history counts as `stored` what it still has for the group. `uncounted` says in words
    which frames `pending` cannot know of, so that it may be too small; empty means that it is exact. A frame that is gone is
    neither stored for the group nor pending; nor is one that was acknowledged before an older one, once its member has left.

    `unsure`: so many of the pending ones, at most, may have been dealt with all the same, and nobody has said so yet: they are
    in the hands of a member, or of one that fell silent, were handed back, or come again after a seek. None means that it may
    be any of them. What a member that left in good order had in hand, and neither acknowledged nor handed back, was not.

    `oldest`: seconds since the oldest of the pending ones was stored, by the broker's clock where it has one, else by this
    machine's; 0 where none is pending. None: the broker cannot tell, or did not in time.
    """

    stored: int
    pending: int
    truncated: bool
    uncounted: str = ""
    dropped: bool = False
    whole: bool = False
    unsure: int | None = None
    behind: Sequence[int] | None = None
    oldest: float | None = None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """What must exist: topics, and the topics that each group reads. `retention` says for how many seconds topics keep their
    frames, read or not, of those where somebody decided it: a broker that cannot have it so leaves it to the checks."""

    topics: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = {}
    retention: Mapping[str, float] = {}


Start = Literal["earliest", "latest"]


class Stream(Protocol):
    """One member of a consumer group. Members share the work: a key goes to one member at a time."""

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        """At most `limit` frames, in order per key. Waits up to `wait` seconds for the first; [] when none came.

        Frames that were received and neither acknowledged nor handed back are bounded by the subscription's `window`
        per partition. Raises BrokerUnavailable. Cancelling it loses nothing.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These were dealt with: never hand them out again. In any order; an ack that came too late is harmless. It ends in
        bounded time, also on a connection that died; where it raises BrokerUnavailable, they may come again, though nobody says
        it a second time: they hold up nothing for longer than a lease."""
        ...

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        """Take these back and hand them out again soon, in order per key, to any member. They may have been dealt with."""
        ...

    async def aclose(self) -> None:
        """Leave the group. Frames not acknowledged go to other members at once. What was dealt with is acknowledged or handed
        back by then. Idempotent."""
        ...


class Broker(Protocol):
    """A named log or queue service. Every method may raise BrokerUnavailable; foreign errors never escape."""

    sheet: Capabilities

    async def ensure(self, topology: Topology) -> None:
        """Make the topics and groups that are missing; change and delete nothing. Idempotent. A group that was only made
        here starts where its first member says."""
        ...

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """Store the frames; one verdict per frame, in the same order.

        A verdict is given only once the broker has confirmed it. Frames of one key are stored in the given order, and
        when one of them is refused, the later ones of that key in this call are refused too. A topic that does not
        exist refuses its frames. BrokerUnavailable means that nothing is known: publish all of them again.
        """
        ...

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        """Join a group. `start` matters only when the group is new to a topic. May be called several times at once. When it
        raises or is cancelled nothing of it stays open: a member that reads nothing would keep others from reading."""
        ...

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """Move a group so that its next frame is the first at or after a position or a time (seconds since 1970).

        Exactly one of both is given. Members pick it up within a few seconds. Raises SeekUnsupported.
        """
        ...

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """Where the group stands in each topic. Makes nothing: what is not there yet stands at zero."""
        ...

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """Whether the broker is set up to keep the promise; with `today` also what may be different in a minute. The
        sheet is complete afterwards. Changes nothing."""
        ...

    async def aclose(self) -> None:
        """Close every stream and connection. Idempotent."""
        ...
