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


def changes(before: bytes, after: bytes, hidden: Sequence[str] = ()) -> Changes:
    """The fields of two JSON documents that differ, dots reaching inside. Of those under a `hidden` path, in which `*` is any
    item, it is said only that they changed. Other bytes have a length."""
    try:
        old, new = _fields(msgspec.json.decode(before)), _fields(msgspec.json.decode(after))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"bytes": (len(before), len(after))}
    patterns = [pattern.split(".") for pattern in hidden]
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {
        name: (HIDDEN, HIDDEN) if _is_hidden(name.split("."), patterns) else (old.get(name), new.get(name))
        for name in names
    }


def _fields(document: object, path: str = "") -> Mapping[str, object]:
    """What is at the end of each path; an empty container is a value."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    inside = {
        name: value
        for key, item in items
        for name, value in _fields(item, f"{path}.{key}" if path else str(key)).items()
    }
    return inside or {path: document}


def _is_hidden(path: Sequence[str], patterns: Sequence[Sequence[str]]) -> bool:
    return any(
        len(path) >= len(pattern) and all(want in ("*", have) for want, have in zip(pattern, path, strict=False))
        for pattern in patterns
    )
