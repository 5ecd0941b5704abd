"""Operators: who acts on what runs, and the one place that writes their log."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from posthouse.errors import ChangedSince, PosthouseError, StoreError
from posthouse.redaction import HIDDEN, redacted
from posthouse.store import CoreStore, Transaction
from posthouse.store.actions import BEGUN, Action, ActionFilter, Changes

try:
    import pwd
except ImportError:  # Windows, where os.getlogin() asks the system
    pwd = None  # type: ignore[assignment]

log = logging.getLogger("posthouse.operators")

VARIABLE = "POSTHOUSE_OPERATOR"
"""Says who acts, where a login or a host does not: in a container, behind a console."""

SIGNED_IN = " (console)"
"""Behind the name of whoever acts through a console."""

LONGEST = 200
"""So many characters are kept of a text that was changed."""

AT_ONCE = 16_384
"""Bytes that are compared so fast that nobody notices."""

Path = tuple[str, ...]
"""Keys from the outside to the inside of a document."""


def operator_name() -> str:
    """Whoever nobody named: what the environment says, else the login and the host of this process."""
    return plain(os.environ.get(VARIABLE, "")) or login_name()


def plain(by: str) -> str:
    """The name without what only a console says beside it, in the operators' log and in jobs: that somebody signed in there. Whoever
    runs a command is told by it as little as by anything else that may be typed."""
    name = by.strip()
    while name.endswith(SIGNED_IN):
        name = name.removesuffix(SIGNED_IN).strip()
    return name


def login_name() -> str:
    """As whom of which machine this process runs, whatever anybody says."""
    return f"{_login()}@{socket.gethostname()}"


def _login() -> str:
    """What the system says: never a variable of the environment, which anybody sets."""
    if pwd is None:
        return os.getlogin()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number without a name
        return str(os.getuid())


class Press(NamedTuple):
    """One act as somebody pressed for it: its id in the log, and the turn of the row that they had seen; None: any."""

    id: str
    turn: int | None


_pressed: contextvars.ContextVar[Press | None] = contextvars.ContextVar("posthouse_pressed", default=None)


@contextlib.contextmanager
def pressed(id: str, turn: int | None = None) -> Iterator[None]:
    """The one act inside is noted under this id, so that it is done once: again, in whatever process, it raises DoneAlready. It is
    done to a held event or a saga in this turn only: ChangedSince. Either changes nothing."""
    before = _pressed.set(Press(id, turn))
    try:
        yield
    finally:
        _pressed.reset(before)


def refuse_changed(turn: int, what: str) -> None:
    """Raise ChangedSince unless what is acted on, locked, is as it was seen."""
    press = _pressed.get()
    if press is not None and press.turn not in (None, turn):
        raise ChangedSince(f"{what} was changed since you looked at it, and nothing was done: look again")


class Act:
    """What came of an act that is no transaction of the store; whoever acts may say more of it before it ends."""

    def __init__(self, count: int) -> None:
        self.changed: Changes = {}
        self.count = count


class OperatorsLog:
    """What operators did with the services of one store. Secrets are hidden as in every other text that is kept."""

    def __init__(self, store: CoreStore, service: str = "") -> None:
        self._store = store
        self._service = service

    async def note(self, tx: Transaction, action: Action) -> None:
        """Write it in the transaction of the act itself: both are there, or neither."""
        await self._store.actions.add(tx, self.signed(action))

    @contextlib.asynccontextmanager
    async def doing(self, action: Action) -> AsyncIterator[Act]:
        """Around an act elsewhere, in a broker or over many transactions: it is noted before it begins, and how it ended after.
        One that its process did not survive stays `begun`."""
        begun = msgspec.structs.replace(self.signed(action), outcome=BEGUN)
        async with self._store.begin() as tx:
            await self._store.actions.add(tx, begun)
        act = Act(begun.count)
        try:
            yield act
        except BaseException as error:
            await self._end(begun, act, f"failed: {_why(error)}")
            raise
        await self._end(begun, act, "done")

    async def find(self, wanted: ActionFilter | None = None, limit: int = 100) -> Sequence[Action]:
        """What was done, newest first."""
        return await self._store.actions.find(wanted or ActionFilter(), limit)

    def signed(self, action: Action) -> Action:
        """As it is kept: with a name, and without secrets."""
        press = _pressed.get()
        return msgspec.structs.replace(
            action,
            id=action.id if press is None else press.id,
            by=redacted(action.by.strip()) or operator_name(),
            why=redacted(action.why.strip()),
            service=action.service or self._service,
            changed=_shown(action.changed),
        )

    async def _end(self, begun: Action, act: Act, outcome: str) -> None:
        ended = msgspec.structs.replace(begun, outcome=outcome, changed=_shown(act.changed), count=act.count)
        try:
            async with self._store.begin() as tx:
                await self._store.actions.end(tx, ended)
        except StoreError as error:
            log.warning("%s by %s ended (%s), which could not be noted: %s", begun.verb, begun.by, outcome, error)


def _shown(changed: Changes) -> Changes:
    return {name: (_value(name, before), _value(name, after)) for name, (before, after) in changed.items()}


def _value(name: str, value: object) -> object:
    """A secret is known by the name of its field, or by what it looks like."""
    said = msgspec.json.encode({name: value}).decode()
    if redacted(said) != said:
        return HIDDEN
    return value if not isinstance(value, str) or len(value) <= LONGEST else f"{value[:LONGEST]}{HIDDEN}"


NOTHING = (None, msgspec.UNSET)
"""A null, or no such field."""
MOST_FIELDS = 200
"""So many that differ are told of; of more it is told how many."""
MORE = "…"
"""Stands for those."""
LARGEST = 2**20
"""Bytes of a document that is compared field by field."""


class _Place(NamedTuple):
    """Where a value is: what it is called there, in another place. No text, which would be written for each of many values."""

    above: _Place | None
    key: str

    @property
    def name(self) -> str:
        keys: list[str] = []
        place: _Place | None = self
        while place is not None:
            keys.append(place.key)
            place = place.above
        whole = ".".join(reversed(keys))
        return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}{HIDDEN}"


def changes(before: bytes, after: bytes, hidden: Sequence[str] = ()) -> Changes:
    """The fields of two JSON documents that differ, dots reaching inside, up to MOST_FIELDS, and under MORE how many others. Of those
    under a `hidden` path, in which `*` is any item, it is said only that they changed, and of what has another structure than these
    paths too. Other bytes, and very many, have a length. It takes time in proportion to its bytes."""
    found = _Found()
    try:
        if max(len(before), len(after)) > LARGEST:
            return {"bytes": (len(before), len(after))} if before != after else {}
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
        _compare(None, old, new, [tuple(path.split(".")) for path in hidden], found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"bytes": (len(before), len(after))}
    return found.fields | ({MORE: (None, f"{found.more:,} more")} if found.more else {})


async def changes_aside(before: bytes, after: bytes, hidden: Sequence[str] = ()) -> Changes:
    """The same, and nobody else waits for it."""
    if len(before) + len(after) < AT_ONCE:
        return changes(before, after, hidden)
    return await asyncio.to_thread(changes, before, after, hidden)


class _Found:
    def __init__(self) -> None:
        self.fields: dict[str, tuple[object, object]] = {}
        self.noted = 0

    @property
    def more(self) -> int:
        return max(0, self.noted - MOST_FIELDS)

    def note(self, place: _Place | None, before: object, after: object, *, is_hidden: bool) -> None:
        self.noted += 1
        if self.noted > MOST_FIELDS:
            return
        name = "" if place is None else place.name
        is_hidden = is_hidden or name in self.fields  # of two places with one name neither is said
        said = [None if value is msgspec.UNSET else value for value in (before, after)]
        self.fields[name] = (HIDDEN, HIDDEN) if is_hidden else (said[0], said[1])


def _compare(place: _Place | None, old: object, new: object, hidden: Sequence[Path], found: _Found) -> None:
    """Note what differs at the end of each path; an empty container is a value. `hidden` are the paths from here on: they follow
    the structure, never the names as they are written, since a key may hold a dot."""
    is_hidden = () in hidden
    if hidden and not is_hidden and not _fits(old, new, hidden):
        if not _same(old, new):
            found.note(place, old, new, is_hidden=True)
        return
    olds, news = _inside(old), _inside(new)
    turned = {type(old), type(new)} == {dict, list}
    if turned or (not olds and not news):
        if not _same(old, new):
            found.note(place, old, new, is_hidden=is_hidden)
        return
    if not olds and old not in NOTHING:
        found.note(place, old, None, is_hidden=is_hidden)
    if not news and new not in NOTHING:
        found.note(place, None, new, is_hidden=is_hidden)
    is_list = isinstance(old, list) or isinstance(new, list)
    for key in {**olds, **news}:
        if is_hidden:
            below: list[Path] = [()]
        elif is_list:
            below = [one[1:] if one[0] == "*" else one for one in hidden]
        else:
            below = [one[1:] for one in hidden if one[0] in ("*", key)]
        _compare(_Place(place, key), olds.get(key, msgspec.UNSET), news.get(key, msgspec.UNSET), below, found)


def _same(old: object, new: object) -> bool:
    """As they are written: 1 is neither true nor 1.0, and null is not what is missing."""
    if old is msgspec.UNSET or new is msgspec.UNSET:
        return old is new
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")


def _fits(old: object, new: object, hidden: Sequence[Path]) -> bool:
    """Whether what is here has the structure that the hidden paths speak of; nobody knows what is personal in something else."""
    kinds = {type(value) for value in (old, new) if value not in NOTHING}
    return kinds <= {dict} or (kinds == {list} and any(path[0] == "*" for path in hidden))


def _inside(value: object) -> Mapping[str, object]:
    if isinstance(value, list):
        return {str(number): item for number, item in enumerate(value)}
    return value if isinstance(value, dict) else {}


def _why(error: BaseException) -> str:
    """In words that may be kept: those of our own errors. Of any other nobody knows what it quotes, such as a person's name."""
    return redacted(str(error)) if isinstance(error, PosthouseError) and str(error) else type(error).__name__
