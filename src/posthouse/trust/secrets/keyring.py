"""Keyring: the keys that a process has in memory: bounded, for a while, and forgotten at the word of the key store.

Whoever erases waits until every process has said that it forgot. So a process says that it may hold keys before it gets one, and
asks every two seconds who was erased. One that hears nothing for the length of its lease forgets everything by itself: from then
on it can do no harm, whether or not anybody hears of it again. The child of a fork is another process: it begins without a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posthouse import forks
from posthouse.clock import new_id
from posthouse.errors import SecretsUnavailable, StoreError
from posthouse.trust.secrets.keystore import Holder, KeyStore, StoredKey
from posthouse.trust.secrets.master import Master
from posthouse.trust.secrets.sealing import Erased, Key

log = logging.getLogger("posthouse.secrets")

T = TypeVar("T")

LOOK = 2.0
"""Seconds between two looks at who was erased."""
SIZE = 32
"""Bytes of a key: AES-256."""
TRIES = 3
"""So often keys are fetched that come later than a lease allows."""
AT_ONCE = 100
"""So many persons are asked for in one question."""

Open = Callable[[], tuple[KeyStore, Master]]


class Keyring:
    """`most` keys at once, each for `keep` seconds and then fetched anew; all for `lease` seconds without a word from the store."""

    def __init__(self, name: str, open: Open, *, most: int, keep: float, lease: float) -> None:
        self._name = name
        self._open = open
        self.store, self.master = open()
        self._most = most
        self._keep = keep
        self._lease = lease
        self._keys: OrderedDict[tuple[str, str], tuple[Key, float]] = OrderedDict()
        self.settle: Callable[[], Awaitable[None]] | None = None
        """Brings tombstones into the key store that it lost."""
        self._inherited: list[object] = []
        """Connections of the parent of a fork, which are neither used nor closed here."""
        self._as_nobody()
        forks.tell(self)

    def _as_nobody(self) -> None:
        """Known to no key store yet."""
        self._id = new_id()
        self._forgot = -1
        self._heard = float("-inf")
        """When the question was asked that the key store answered last."""
        self._ready = False
        self.settled = False
        """Whether the key store has every tombstone that is known here."""
        self._looking: asyncio.Task[None] | None = None

    def begin_anew(self) -> None:
        """In the child of a fork: what its parent says about its own keys is not said of these."""
        self.forget()
        self._inherited += (self.store, self.master, self._looking)
        self._as_nobody()
        self.store, self.master = self._open()

    def known(self, tenant: str, subject: str) -> Key | None:
        """The key, if it is here and may be used."""
        found = self._keys.get((tenant, subject))
        if found is None:
            return None
        now = time.monotonic()
        if now > found[1] or now > self._heard + self._lease:
            return None
        self._keys.move_to_end((tenant, subject))
        return found[0]

    def __len__(self) -> int:
        return len(self._keys)

    async def fetch(self, tenant: str, subjects: Collection[str], *, make: bool = False) -> Mapping[str, Key]:
        """The keys of these persons, with `make` also of those who have none yet; whoever is missing has none. Raises
        SecretsUnavailable. Without an event loop it is done on another thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _elsewhere(self._fetch_apart(tenant, subjects, make))
        return await self._fetch(self.store, self.master, tenant, subjects, make)

    async def look(self, store: KeyStore | None = None) -> None:
        """Hear who was erased, forget them, and say so. Raises SecretsUnavailable."""
        store = store or self.store
        while True:
            asked, pid = time.monotonic(), os.getpid()
            said = Holder(
                id=self._id, name=f"{self._name} (process {pid})", forgot=self._forgot, age=0.0, lease=self._lease
            )
            last, gone = await store.hear(said)
            for person in gone:
                self._keys.pop(person, None)
            if last < self._forgot:
                log.warning(
                    "%s: the key store has fewer erasures than before: it was brought back from a backup", self._name
                )
                self.forget()
                self.settled = False
            self._heard = max(self._heard, asked)
            if last == self._forgot:
                return
            self._forgot = last

    def forget(self) -> None:
        """All of them."""
        self._keys.clear()

    async def aclose(self) -> None:
        """Forget, and say so where that can be said."""
        self.forget()
        looking, self._looking = self._looking, None
        if looking is not None and looking.get_loop() is asyncio.get_running_loop():
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        if self._heard > float("-inf"):
            self._heard = float("-inf")
            with contextlib.suppress(SecretsUnavailable):
                await self.store.leave(self._id)
        await self.store.aclose()
        await self.master.aclose()

    async def _fetch_apart(self, tenant: str, subjects: Collection[str], make: bool) -> Mapping[str, Key]:
        store, master = self._open()
        try:
            return await self._fetch(store, master, tenant, subjects, make, apart=True)
        finally:
            await store.aclose()
            await master.aclose()

    async def _fetch(
        self,
        store: KeyStore,
        master: Master,
        tenant: str,
        subjects: Collection[str],
        make: bool,
        *,
        apart: bool = False,
    ) -> Mapping[str, Key]:
        if not self._ready:
            await store.present()
            self._ready = True
        if time.monotonic() - self._heard > LOOK:  # it counts as a holder before it has anything
            await self.look(store)
        if not apart:
            self.watch()
        found: dict[str, Key] = {}
        wanted = sorted(subjects)
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            found |= await self._some(store, master, tenant, some, make)
        return found

    async def _made(
        self, store: KeyStore, master: Master, tenant: str, subjects: Sequence[str]
    ) -> Mapping[str, StoredKey]:
        if await store.is_new():
            await master.begin()
        fresh = {subject: AESGCM.generate_key(SIZE * 8) for subject in subjects}
        return await store.add(tenant, {one: await master.wrap(tenant, one, key) for one, key in fresh.items()})

    async def _some(
        self, store: KeyStore, master: Master, tenant: str, subjects: Collection[str], make: bool
    ) -> Mapping[str, Key]:
        """Those of a few, into memory; asked again when somebody was forgotten meanwhile, who may be one of them, or when the
        lease ended: this process may have been paused, and nobody waited for it any more."""
        late = 0
        while True:
            forgot, until, found = self._forgot, time.monotonic() + self._keep, dict[str, Key]()
            known = await store.get(tenant, subjects)
            if make and (new := [subject for subject in subjects if subject not in known]):
                known = {**known, **await self._made(store, master, tenant, new)}
            for subject, stored in known.items():
                found[subject] = await _unwrapped(master, stored)
            if time.monotonic() > self._heard + self._lease:
                late += 1
                if late == TRIES:
                    raise SecretsUnavailable(f"the key store answers later than the lease allows, {self._lease:g} s")
                await self.look(store)
            elif forgot == self._forgot:
                break
        for subject, key in found.items():
            self._keys[(tenant, subject)] = key, until
        while len(self._keys) > self._most:
            self._keys.popitem(last=False)
        return found

    def watch(self) -> None:
        """Go on looking who was erased, also while nobody needs a key: a key store that was brought back is told by whoever remembers."""
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._looking = loop.create_task(self._look_on())

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
                if not self.settled and self.settle is not None:
                    await self.settle()
            except (SecretsUnavailable, StoreError) as error:
                log.debug("who was erased is not known: %s", error)
                if self._keys and time.monotonic() > self._heard + self._lease:
                    log.warning(
                        "%s: all keys are forgotten, nothing was heard from the key store for %g s",
                        self._name,
                        self._lease,
                    )
                    self.forget()


async def _unwrapped(master: Master, stored: StoredKey) -> Key:
    if stored.wrapped is None:
        return Erased(stored.erased_at or 0.0)
    return AESGCM(await master.unwrap(stored.tenant, stored.subject, stored.wrapped))


def _elsewhere(work: Awaitable[T]) -> T:
    """What it comes to, on a thread with an event loop of its own."""

    async def run() -> T:
        return await work

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()
