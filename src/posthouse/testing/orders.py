"""Orders: play one saga in every order in which facts may arrive, with failures, copies, cancels and deadlines in between."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.options import Count, checked
from posthouse.processes import Saga
from posthouse.service import Service
from posthouse.testing.orders_play import Deed, Ending, Invariants, Play, Scene, Violation, Wait
from posthouse.testing.orders_world import Choices, hears

__all__ = ["Ending", "Orders", "OrdersBroken", "Violation", "assert_every_order", "hears"]


SIDE_BY_SIDE = 100
"""Runs that are played at the same time, each as a tenant of its own."""
FIRST = 30
"""Those that are drawn before it is known how a tree branches."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What was played: so many different `runs` `of` those that there are, which is a guess unless all were played."""

    runs: int
    of: int
    violations: Sequence[Violation]
    ends: Mapping[str, int]
    """How many runs ended with which status; an empty one: no saga was started."""

    @property
    def whole(self) -> bool:
        """Whether every order was played."""
        return self.runs == self.of

    @property
    def started(self) -> bool:
        """Whether in any of them a saga was started: without one, invariants have nothing to look at."""
        return any(status not in ("", "awaited") for status in self.ends)

    def __str__(self) -> str:
        count = f"all {self.runs:,} orders" if self.whole else f"{self.runs:,} of about {self.of:,} orders"
        kinds = Counter(violation.what for violation in self.violations)
        broken = len({violation.order for violation in self.violations})
        ended = ", ".join(f"{number:,} {status or 'never started'}" for status, number in sorted(self.ends.items()))
        told = [f"  they ended: {ended}", *(f"  {number:,} × {what}" for what, number in kinds.most_common())]
        first = {violation.what: violation for violation in reversed(self.violations)}
        return "\n".join([f"{count} played, {broken:,} of them break an invariant", *told, *map(str, first.values())])


class OrdersBroken(AssertionError):
    """Some runs broke an invariant. The message counts them, and tells one of each kind."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(str(orders))
        self.orders = orders


@checked
async def assert_every_order(
    service: Service,
    saga: type[Saga],
    *,
    start: Deed,
    invariants: Invariants,
    partners: Sequence[type] = (),
    neighbours: Sequence[Service] = (),
    before: Sequence[Deed] = (),
    meanwhile: Mapping[str, Deed] | None = None,
    limit: Count = 1000,
    seed: int = 0,
    only: str | None = None,
) -> Orders:
    """Play a saga again and again, from `start` until nothing moves any more, each time in another order.

    `partners` are classes whose methods are marked with `hears`: each run makes them anew. `neighbours` are services that
    run beside it with their own handlers. Facts that the saga takes arrive in every order that keeps the order of each key.
    At every point a turn may fail once, a fact may come twice, an operator may cancel, each deadline may pass, and what
    `meanwhile` names may happen, once; two such disturbances in a run at most, beside one deadline. `before` is done first,
    step by step, with everything arriving at once.

    In the end `invariants` are asked. A saga that stands still, a run without an end, a fact that was given up, and a play in
    which no saga was ever started are always violations. Raises OrdersBroken, an AssertionError, when there are any.

    Up to `limit` runs are played; if there are more orders, these are drawn at random, the same ones for the same `seed`.
    `only` is the order of a violation, to play it again alone.
    """
    scene = Scene(start, invariants, tuple(partners), tuple(neighbours), tuple(before), dict(meanwhile or {}))
    trees = _Trees(Play(service, saga, scene), random.Random(seed))
    orders = await (trees.all(limit) if only is None else trees.one(only))
    if not orders.started:
        orders = msgspec.structs.replace(orders, violations=[*orders.violations, _nothing_played(saga, start)])
    if orders.violations:
        raise OrdersBroken(orders)
    return orders


class _Trees:
    """Which runs are played. Every wait at every place of a run is a tree of choices."""

    def __init__(self, play: Play, chance: random.Random) -> None:
        self._play = play
        self._chance = chance

    async def one(self, order: str) -> Orders:
        """An order that is known."""
        wait, given = _read(order)
        [played] = await self._play.batch([Choices(given)], wait)
        return Orders(runs=1, of=1, violations=played.violations, ends={played.status: 1})

    async def all(self, limit: int) -> Orders:
        """Trees that can be walked whole are, and of the others a share."""
        found = [await self._tree(None, max(1, limit // 4))]
        waits = [Wait(at, pause) for pause in sorted(self._play.pauses) for at in range(1, self._play.rounds + 1)]
        for number, wait in enumerate(waits):
            left = limit - sum(orders.runs for orders in found)
            found.append(await self._tree(wait, max(1, left // (len(waits) - number))))
        return Orders(
            runs=sum(orders.runs for orders in found),
            of=sum(orders.of for orders in found),
            violations=[violation for orders in found for violation in orders.violations],
            ends=sum((Counter(orders.ends) for orders in found), Counter()),
        )

    async def _tree(self, wait: Wait | None, share: int) -> Orders:
        """Draw a few runs, then play others that turn off their ways, until none is left or the share is played. From the
        first few it is guessed how many there are (Knuth, 1975)."""
        some = [Choices((), self._chance) for _ in range(min(FIRST, share))]
        ahead: dict[tuple[int, ...], float] = {}
        """Where runs may turn off, and when their turn is: the likelier, the sooner (Efraimidis and Spirakis, 2006)."""
        known: set[tuple[int, ...]] = set()
        played: set[tuple[int, ...]] = set()
        guess, broken, ends = 0.0, list[Violation](), Counter[str]()
        while some:
            batch = await self._play.batch(some, wait)
            guess = guess or sum(one.choices.below for one in batch) / len(batch)
            for choices, status, violations in batch:
                if choices.path in played:
                    continue
                played.add(choices.path)
                broken += violations
                ends[status] += 1
                known.update(choices.path[:length] for length in range(len(choices.path) + 1))
                ahead |= {path: self._chance.random() ** (1 / weight) for weight, path in choices.siblings()}
            ahead = {path: turn for path, turn in ahead.items() if path not in known}
            number = min(SIDE_BY_SIDE, share - len(played))
            soonest = heapq.nlargest(number, ahead, key=lambda path: ahead[path])
            known.update(soonest)
            some = [Choices(path, self._chance) for path in soonest]
        of = max(round(guess), len(played) + len(ahead)) if ahead else len(played)
        return Orders(runs=len(played), of=of, violations=broken, ends=ends)


def _nothing_played(saga: type[Saga], start: Deed) -> Violation:
    words = f"nothing was played: {start.__name__} started no {saga.__name__} for the tenant that it was given"
    return Violation(what=words, order="", story=["no saga was started"])


def _read(order: str) -> tuple[Wait | None, list[int]]:
    """As a violation names it: where time passes, and the choices."""
    where, _, path = order.rpartition("/")
    at, _, seconds = where.partition("+")
    try:
        return Wait(int(at), float(seconds)) if where else None, [int(one) for one in path.split(".") if one]
    except ValueError:
        raise ConfigurationError(
            f"only={order!r} is no order: give it as a violation tells it, such as '0.2.1'"
        ) from None
