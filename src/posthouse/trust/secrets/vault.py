"""Vault: the steps of the seam for one App: encrypt on the way out, decrypt on the way in, and what is shown to those who may not."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from posthouse.contracts import EventType
from posthouse.contracts.boxes import Box, Revealed
from posthouse.contracts.versions import Cast
from posthouse.errors import DoneAlready, FrameRefused
from posthouse.events import PLATFORM, Event
from posthouse.operators import OperatorsLog
from posthouse.store import CoreStore, Transaction
from posthouse.store.actions import Action, ActionFilter
from posthouse.trust.secrets.declaring import Secrets
from posthouse.trust.secrets.fields import Fields, problems_of, problems_of_cast, secret_fields
from posthouse.trust.secrets.keyring import Keyring
from posthouse.trust.secrets.keys import open_keys
from posthouse.trust.secrets.keystore import Erasure, KeyStore, problem_of
from posthouse.trust.secrets.master import Master
from posthouse.trust.secrets.masters import open_master
from posthouse.trust.secrets.sealing import (
    Key,
    boxes_in,
    carried,
    holds_boxes,
    nonces,
    opened,
    refuse_boxes,
    refuse_carried,
    revealed,
    sealed,
    subjects_in,
    withheld,
)

log = logging.getLogger("posthouse.secrets")

ERASE = "subject erase"
"""The verb in the operators' log, from which tombstones are brought back into a key store that lost them."""
FIRST = "secrets begin"
"""The verb by which a store remembers that it has a key store."""
MOST = 100_000
CALM = 60.0
"""Seconds without a missing key after which none is looked for ahead."""

Find = Callable[[str], EventType[object] | None]
"""The type of a subject, if one of the services knows it."""


class Missing(Exception):
    """A key that is not in memory."""


class Vault:
    """`name` tells this process from others; `find` knows the events of its services."""

    def __init__(self, secrets: Secrets, name: str, find: Find) -> None:
        self.secrets = secrets
        self._find = find
        self._fields: dict[str, Fields | None] = {}
        self._kinds = frozenset(secrets.reads)
        self._missed = time.monotonic()
        """When a key was not in memory last."""
        self.keyring = Keyring(name, self._open, most=secrets.most, keep=secrets.keep, lease=secrets.lease)

    def _open(self) -> tuple[KeyStore, Master]:
        patience = self.secrets.patience
        return open_keys(self.secrets.keys_url, patience), open_master(self.secrets.master_name, patience)

    @property
    def store(self) -> KeyStore:
        """Where the keys are."""
        return self.keyring.store

    def problems(self, types: Iterable[EventType[object]], casts: Iterable[Cast] = ()) -> list[str]:
        """Why personal fields of what may be published cannot be kept secret, also in the older versions that `casts` make of it;
        one sentence each."""
        open_beside = [problem for cast in casts for problem in problems_of_cast(cast.source, cast.target)]
        return [problem for known in types for problem in problems_of(known)] + open_beside

    # The steps of the seam.

    async def encrypt(self, transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        """Seal what is secret. A person's first fact makes his key. The key store is asked only for keys that are not in memory:
        inside of the transaction, for at most `patience` seconds."""
        for event in events:
            refuse_boxes(event, self._fields_of(event.type))
            refuse_carried(event, self._fields_of(event.type))
        if not any(self._fields_of(event.type) for event in events):
            return events
        try:
            return self._all_sealed(events, {})
        except Missing:
            return self._all_sealed(events, await self._keys_for(events))

    async def decrypt(self, event: Event[bytes]) -> Event[bytes]:
        """Open what these services may read; a placeholder stands for the rest."""
        if not holds_boxes(event):
            return event
        try:
            return opened(event, self._key_of(event.tenant, {}), self._kinds)
        except Missing:
            self._missed = time.monotonic()
            found = await self._keys_of(event, self._opens)
            return opened(event, self._key_of(event.tenant, found), self._kinds)

    async def gather(self, events: Sequence[Event[bytes]]) -> None:
        """Ask once for the keys of all of these that are not in memory. While none was missing for a while nobody looks for any."""
        if time.monotonic() > self._missed + CALM:
            return
        wanted: dict[str, set[str]] = {}
        for event in events:
            for of in self._unknown_in(event) if holds_boxes(event) else ():
                wanted.setdefault(event.tenant, set()).add(of)
        for tenant, subjects in wanted.items():
            await self.keyring.fetch(tenant, subjects)

    def _unknown_in(self, event: Event[bytes]) -> set[str]:
        """Whose keys it takes to open an event, but for those that are in memory."""
        try:
            subjects = {box.of for _, box in boxes_in(event) if self._opens(box)}
        except FrameRefused:
            return set()  # it is refused in its turn
        return {one for one in subjects if self.keyring.known(event.tenant, one) is None and not problem_of(one)}

    def _opens(self, box: Box) -> bool:
        return bool(box.version) and (box.kind in self._kinds or "*" in self._kinds)

    async def carry(self, event: Event[bytes]) -> Event[bytes]:
        """`decrypt`, for sagas: what they keep and pass on stays encrypted. The key proves that it came this way."""
        if not holds_boxes(event):
            return event
        try:
            return carried(event, self._key_of(event.tenant, {}))
        except Missing:
            found = await self._keys_of(event, lambda box: bool(box.version) and box.gap == "text")
            return carried(event, self._key_of(event.tenant, found))

    async def withhold(self, event: Event[bytes]) -> Event[bytes]:
        """`decrypt`, for those who may read nothing."""
        return withheld(event) if holds_boxes(event) else event

    def conceal(self, event: Event[bytes]) -> Event[bytes]:
        """What may be kept in a history of a fact that is not sealed yet."""
        fields = self._fields_of(event.type)
        return event if fields is None else sealed(event, fields, _no_key, iter(()), conceal=True)

    async def edited(self, event: Event[bytes]) -> Event[bytes]:
        """An event that was edited, with what is plain in it sealed."""
        if self._fields_of(event.type) is None:
            return event
        try:
            (found,) = self._all_sealed([event], {}, edited=True)
        except Missing:
            (found,) = self._all_sealed([event], await self._keys_for([event]), edited=True)
        return found

    async def reveal(self, store: CoreStore, event: Event[bytes]) -> Revealed:
        """All of an event, whatever handlers here may read, for a person whose look is kept. Keys are asked for anew, and whoever
        is known here as erased is so in the key store first. Raises SecretsUnavailable."""
        if not holds_boxes(event):
            return Revealed(event.data)
        if not self.keyring.settled:
            await self.settle(store)
        subjects = {box.of for _, box in boxes_in(event) if box.version and not problem_of(box.of)}
        return revealed(event, await self.keyring.fetch(event.tenant, subjects) if subjects else {})

    # A key store that may be missing, or may have lost erasures.

    async def begin(self, store: CoreStore) -> None:
        """A first start makes a key store; the operators' log of the store remembers that, so that no later start makes another one
        beside data that only the first one opens."""
        known = await store.actions.get(PLATFORM, FIRST)
        if known is None:
            await self.store.begin()
            first = Action(
                verb=FIRST, id=FIRST, tenant=PLATFORM, target=self.store.place, why="its first start with secret fields"
            )
            with contextlib.suppress(DoneAlready):  # by another process
                async with store.begin() as tx:
                    await OperatorsLog(store).note(tx, first)
        else:
            await self.store.present()
        await self.settle(store)

    async def settle(self, store: CoreStore) -> int:
        """Erase again whom the operators' log of a store says was erased, and the key store does not know of: it was brought
        back from a backup. How many."""
        done = await store.actions.find(ActionFilter(verb=ERASE), MOST)
        again = await reapply(self.store, [erasure_of(action) for action in done]) if done else 0
        self.keyring.settled = True
        return again

    async def aclose(self) -> None:
        """Forget every key, and close what was opened."""
        await self.keyring.aclose()

    def _fields_of(self, name: str) -> Fields | None:
        if name not in self._fields:
            known = self._find(name)
            if known is None:
                return None
            self._fields[name] = secret_fields(known)
        return self._fields[name]

    def _all_sealed(
        self, events: Sequence[Event[bytes]], keys: Mapping[str, Mapping[str, Key]], *, edited: bool = False
    ) -> list[Event[bytes]]:
        """One after the other without a pause, so that a key is looked up once for all of them."""
        found, fresh, of = [], nonces(), dict[str, Callable[[str], Key]]()
        for event in events:
            if (fields := self._fields_of(event.type)) is not None:
                if (key_of := of.get(event.tenant)) is None:
                    key_of = of[event.tenant] = functools.cache(self._key_of(event.tenant, keys.get(event.tenant, {})))
                event = sealed(event, fields, key_of, fresh, edited=edited)
            found.append(event)
        return found

    def _key_of(self, tenant: str, keys: Mapping[str, Key]) -> Callable[[str], Key]:
        def key_of(subject: str) -> Key:
            key = keys.get(subject) or self.keyring.known(tenant, subject)
            if key is None:
                raise Missing
            return key

        return key_of

    async def _keys_of(self, event: Event[bytes], wanted: Callable[[Box], bool]) -> Mapping[str, Key]:
        """What opens some boxes of an event."""
        subjects = {box.of for _, box in boxes_in(event) if wanted(box)}
        for problem in filter(None, map(problem_of, subjects)):
            raise FrameRefused(f"unreadable: the id of whom it is about {problem}: nobody can have encrypted it")
        found = await self.keyring.fetch(event.tenant, subjects)
        for subject in subjects - found.keys():
            raise FrameRefused(
                f"unreadable: tenant {event.tenant!r} has no key of {subject!r}, and he was not erased: it was encrypted with "
                "another key store, or for another tenant"
            )
        return found

    async def _keys_for(self, events: Sequence[Event[bytes]]) -> Mapping[str, Mapping[str, Key]]:
        """By tenant, all that is needed to seal some events."""
        wanted: dict[str, set[str]] = {}
        for event in events:
            if (fields := self._fields_of(event.type)) is not None:
                wanted.setdefault(event.tenant, set()).update(subjects_in(event, fields))
        return {tenant: await self.keyring.fetch(tenant, said, make=True) for tenant, said in wanted.items()}


async def reapply(keys: KeyStore, known: Sequence[Erasure]) -> int:
    """Erase whoever the key store does not know as erased. How many."""
    again = 0
    for tenant in sorted({erasure.tenant for erasure in known}):
        theirs = {erasure.subject: erasure for erasure in known if erasure.tenant == tenant}
        there = {erasure.subject for erasure in await keys.erased(tenant, list(theirs))}
        for subject, erasure in theirs.items():
            if subject not in there:
                log.warning(
                    "%r of tenant %r was erased, and the key store does not know it: he is erased again",
                    subject,
                    tenant,
                )
                await keys.erase(erasure)
                again += 1
    return again


def erasure_of(action: Action) -> Erasure:
    """The erasure that an operator asked for."""
    return Erasure(tenant=action.tenant, subject=action.key, why=action.why, by=action.by, at=action.at)


def _no_key(subject: str) -> NoReturn:
    raise Missing
