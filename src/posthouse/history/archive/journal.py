"""Journal: a member's hand on the log: it follows it into the store, and writes the next entry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.clock import Clock, new_id
from posthouse.errors import ArchiveDamaged, ArchiveError, ArchiveOvertaken, ArchiveUnavailable
from posthouse.history.archive.files import File, digests_in
from posthouse.history.archive.log import (
    EVERY,
    Entry,
    Manifest,
    Why,
    current,
    entry_name,
    read_entry,
    sealed,
    write_checkpoint,
)
from posthouse.history.archive.places import Place, prove
from posthouse.redaction import redacted
from posthouse.store import ArchivePlan, ArchiveTable

log = logging.getLogger("posthouse.archive")

MARKER = "archive.json"


class Marker(msgspec.Struct, frozen=True):
    """What lies in a place that has an archive: which one."""

    id: str
    name: str
    format: int = 1


class Journal:
    """Of one archive, by one member."""

    def __init__(self, name: str, place: Place, table: ArchiveTable, clock: Clock, member: str) -> None:
        self.name = name
        self.member = member
        self._place = place
        self._table = table
        self._clock = clock
        self.generation = 0
        """The last entry that was read."""
        self.manifest = Manifest()
        """What is live then."""
        self._void: set[str] = set()
        """Plans that were given up, as it read; whatever the store says, which may have gone back in time."""
        self._turn = asyncio.Lock()
        """Whoever holds it may move `generation` and `manifest`, and nobody else."""

    async def open(self) -> None:
        """Find out that the place keeps its word, that it is this archive's, and what happened since the store knew it last."""
        await asyncio.to_thread(prove, self._place)
        state = await self._table.begin(self.name, new_id())
        found = await asyncio.to_thread(self._mark, state.place)
        if found.id != state.place:
            raise ArchiveError(
                f"{redacted(self._place.url)} has another archive, of {found.name}: give this one a folder of its own. If it is this "
                "one, and its database was lost, `posthouse archive adopt` has the new database read it"
            )
        async with self._turn:
            self.generation = state.generation
            if state.generation and await asyncio.to_thread(self._place.size, entry_name(state.generation)) is None:
                raise ArchiveError(
                    f"{redacted(self._place.url)} lacks entry {state.generation} of its log, which the database knows: what was archived "
                    "since is gone from there. Bring the objects back, or name another folder and read the topics again from their beginning"
                )
            await self._catch_up()
            self.manifest = await current(self._place)

    async def catch_up(self) -> None:
        """Take over what others wrote."""
        async with self._turn:
            await self._catch_up()

    async def _catch_up(self) -> None:
        while (entry := await asyncio.to_thread(read_entry, self._place, self.generation + 1)) is not None:
            await self._follow(entry)

    async def commit(
        self,
        why: Why,
        *,
        plan: str | None = None,
        add: Sequence[File] = (),
        remove: Sequence[str] = (),
        aborted: Sequence[ArchivePlan] = (),
        deleted: Sequence[str] = (),
        seen: int = 0,
    ) -> Entry:
        """Write the next entry, and have the store follow. What is removed was live after the entry that was `seen`. Raises
        ArchiveOvertaken where the plan stands no more, what was to be removed is not live any more, or what was to be given up is done:
        nothing was written then."""
        async with self._turn:
            for generation in range(seen + 1, self.generation + 1) if remove else ():
                _refuse_replaced(remove, await asyncio.to_thread(read_entry, self._place, generation))
            entry = Entry(
                generation=0,
                id=new_id(),
                why=why,
                at=self._clock.now(),
                by=self.member,
                add=tuple(add),
                remove=tuple(remove),
                done=() if plan is None else (plan,),
                aborted=tuple(each.id for each in aborted),
                abandoned=tuple(name for each in aborted for name in each.objects),
                deleted=tuple(deleted),
            )
            return await self._write(entry)

    async def _write(self, draft: Entry) -> Entry:
        while True:
            await self._check(draft)
            entry = sealed(self.manifest, msgspec.structs.replace(draft, generation=self.generation + 1))
            found = await asyncio.to_thread(self._put, entry)
            await self._follow(found)
            if found.id == draft.id:
                await self._checkpoint()
                return found
            _refuse_replaced(draft.remove, found)

    def _put(self, entry: Entry) -> Entry:
        """The entry of that number, once there is one: ours, or whoever was faster."""
        if self._place.put_new(entry_name(entry.generation), msgspec.json.encode(entry)):
            return entry
        found = read_entry(self._place, entry.generation)  # ours, where its first answer was lost
        if found is None:
            raise ArchiveUnavailable(f"{entry_name(entry.generation)} is there, and cannot be read")
        return found

    async def _check(self, draft: Entry) -> None:
        if lacking := [name for name in draft.remove if name not in self.manifest.files]:
            raise ArchiveOvertaken(f"{lacking[0]} is not live any more")
        standing = {each.id for each in await self._table.plans(self.name)}
        for plan in draft.done:
            if plan not in standing or plan in self._void:
                raise ArchiveOvertaken(
                    f"the plan {plan} was given up by another member: {self.member} was silent too long"
                )
        if gone := [each for each in draft.aborted if each not in standing]:
            raise ArchiveOvertaken(f"the plan {gone[0]} is done, or was given up already")

    async def _follow(self, entry: Entry) -> None:
        unknown = await self._table.unknown(self.name, entry.done) if entry.done else []
        learned = await asyncio.to_thread(self._digests, entry, unknown) if unknown else {}
        follows = entry.generation == self.manifest.generation + 1
        manifest = self.manifest.after(entry) if follows else self.manifest
        await self._table.follow(self.name, entry.generation, done=entry.done, aborted=entry.aborted, learned=learned)
        self.generation = entry.generation
        self.manifest = manifest
        self._void.update(entry.aborted)

    def _digests(self, entry: Entry, plans: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        """Which events some plans wrote, from their files: the store went back in time, or is another one."""
        found: dict[str, list[bytes]] = {plan: [] for plan in plans}
        for file in entry.add:
            if file.plan in found:
                try:
                    found[file.plan] += digests_in(self._place, file)
                except ArchiveDamaged as error:
                    log.warning(
                        "%s: events of %s may be archived twice if they come again: %s", self.name, file.name, error
                    )
        return found

    def _mark(self, id: str) -> Marker:
        mine = Marker(id, self.name)
        if self._place.put_new(MARKER, msgspec.json.encode(mine)):
            return mine
        if (found := read_marker(self._place)) is None:
            raise ArchiveUnavailable(f"{MARKER} is there, and cannot be read")
        return found

    async def _checkpoint(self) -> None:
        if self.generation % EVERY == 0 and self.manifest.generation == self.generation:
            try:
                await asyncio.to_thread(write_checkpoint, self._place, self.manifest)
            except ArchiveUnavailable as error:
                log.info("%s: no checkpoint was written: %s", self.name, error)


def _refuse_replaced(names: Sequence[str], entry: Entry | None) -> None:
    if entry is not None and (replaced := set(names) & set(entry.remove)):
        raise ArchiveOvertaken(f"{min(replaced)} was replaced by {entry.by} meanwhile")


def read_marker(place: Place) -> Marker | None:
    """Which archive a place has; None where it has none."""
    found = place.get(MARKER)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=Marker)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ArchiveDamaged(f"{MARKER} is not what was written: {error}") from error
