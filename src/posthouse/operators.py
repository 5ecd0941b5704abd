"""Operators: who acts on what runs, and the one place that writes their log."""

from __future__ import annotations

import contextlib
import contextvars
import getpass
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from posthouse.errors import ChangedSince, StoreError
from posthouse.redaction import HIDDEN, redacted
from posthouse.store import CoreStore, Transaction
from posthouse.store.actions import BEGUN, Action, ActionFilter, Changes

log = logging.getLogger("posthouse.operators")

VARIABLE = "POSTHOUSE_OPERATOR"
"""Says who acts, where a login or a host does not: in a container, behind a console."""

LONGEST = 200
"""So many characters are kept of a text that was changed."""

Path = tuple[str, ...]
"""Keys from the outside to the inside of a document."""


def operator_name() -> str:
    """Whoever nobody named: what the environment says, else the login and the host of this process."""
    named = os.environ.get(VARIABLE, "").strip()
    return named or f"{_login()}@{socket.gethostname()}"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


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
            await self._end(begun, act, f"failed: {redacted(str(error) or type(error).__name__)}")
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


def changes(before: bytes, after: bytes, hidden: Sequence[str] = ()) -> Changes:
    """The fields of two JSON documents that differ, dots reaching inside. Of those under a `hidden` path, in which `*` is any
    item, it is said only that they changed, and of what has another structure than these paths too. Other bytes have a length."""
    found: dict[str, tuple[object, object]] = {}
    try:
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
        _compare((), old, new, [tuple(path.split(".")) for path in hidden], found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"bytes": (len(before), len(after))}
    return found


def _compare(
    path: Path, old: object, new: object, hidden: Sequence[Path], found: dict[str, tuple[object, object]]
) -> None:
    """Note what differs at the end of each path; an empty container is a value. `hidden` are the paths from here on: they follow
    the structure, never the names as they are written, since a key may hold a dot."""

    def note(before: object, after: object, is_hidden: bool) -> None:
        name = ".".join(path)
        is_hidden = is_hidden or name in found  # of two places with one name neither is said
        said = [None if value is msgspec.UNSET else value for value in (before, after)]
        found[name] = (HIDDEN, HIDDEN) if is_hidden else (said[0], said[1])

    is_hidden = () in hidden
    if hidden and not is_hidden and not _fits(old, new, hidden):
        if not _same(old, new):
            note(old, new, True)
        return
    olds, news = _inside(old), _inside(new)
    turned = {type(old), type(new)} == {dict, list}
    if turned or (not olds and not news):
        if not _same(old, new):
            note(old, new, is_hidden)
        return
    if not olds and old not in NOTHING:
        note(old, None, is_hidden)
    if not news and new not in NOTHING:
        note(None, new, is_hidden)
    is_list = isinstance(old, list) or isinstance(new, list)
    for key in {**olds, **news}:
        if is_hidden:
            below: list[Path] = [()]
        elif is_list:
            below = [one[1:] if one[0] == "*" else one for one in hidden]
        else:
            below = [one[1:] for one in hidden if one[0] in ("*", key)]
        _compare((*path, key), olds.get(key, msgspec.UNSET), news.get(key, msgspec.UNSET), below, found)


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
