"""Compacting: small files of one class, topic and day become one, and what nobody needs any more is deleted.

The new file is planned, written, and made live in the entry of the log that takes the others away: readers see one form or the other.
Whoever is overtaken finds in the log that its sources are gone already, and its file never counts. A source that is not as it was
written is left as it is, for `verify` to name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from posthouse.clock import Clock, day_of, new_id
from posthouse.errors import ArchiveDamaged, ArchiveOvertaken, ArchiveUnavailable
from posthouse.history.archive.files import GROUP, File, groups_of, name_of, packed
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.log import Manifest
from posthouse.history.archive.places import Place
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.archive.stretches import Stretch, overlapping
from posthouse.pulse import alive
from posthouse.store import ArchivePlan, ArchiveTable

log = logging.getLogger("posthouse.archive")

MOST = 64
"""Files that become one at once, at most."""
FORGET = 5_000
"""Events that are forgotten at once."""


class Compactor:
    """The housekeeping of one member."""

    def __init__(
        self, name: str, place: Place, table: ArchiveTable, journal: Journal, clock: Clock, settings: ArchiveSettings
    ) -> None:
        self.name = name
        self._place, self._table, self._journal = place, table, journal
        self._clock, self._settings = clock, settings
        self._spoilt: set[str] = set()
        """Files that are not what was written: looked at once."""

    async def tidy(self) -> None:
        """One round: give up what others left, make at most one file of several, delete, forget."""
        await self._journal.catch_up()
        standing = await self._table.plans(self.name)
        for plan in standing:
            if lapsed(plan, self._settings.lease):
                await give_up(self._journal, plan)
        manifest = self._journal.manifest
        busy = {name.rpartition("/")[0] for plan in standing if not plan.events for name in plan.objects}
        if sources := self.choose(manifest, busy):
            await self._compact(manifest, sources)
        await self._delete(manifest)
        while await self._table.forget(self.name, self._settings.remembers, FORGET):
            alive()
            await asyncio.sleep(0)  # lets others have their turn; nothing is waited for

    def choose(self, manifest: Manifest, busy: set[str]) -> Sequence[File]:
        """The files that are to become one next; none where all is well. Not those of a folder where somebody is at work."""
        today = day_of(self._clock.now()).isoformat()
        small: dict[str, list[File]] = {}
        for file in manifest.files.values():
            folder = file.name.rpartition("/")[0]
            if file.bytes * 4 < self._settings.compact_to and folder not in busy and file.name not in self._spoilt:
                small.setdefault(folder, []).append(file)
        for folder in sorted(small):
            enough = self._settings.compact_from if small[folder][0].day >= today else 2
            found, size = list[File](), 0
            for file in sorted(small[folder], key=lambda file: (file.first_at, file.name)):
                if len(found) == MOST or size + file.bytes > self._settings.compact_to:
                    break
                found.append(file)
                size += file.bytes
            if len(found) >= max(2, enough):
                return found
        return ()

    async def _compact(self, manifest: Manifest, sources: Sequence[File]) -> None:
        plan, first = new_id(), sources[0]
        name = name_of(plan, first.retention, first.topic, first.day)
        await self._table.plan(self.name, plan, self._journal.member, [name], [], self._settings.lease)
        try:
            file, data = await asyncio.to_thread(self._merged, plan, name, sources)
            if not await self._table.renew(self.name, plan, self._settings.lease):
                return
            await asyncio.to_thread(put, self._place, file, data)
            removed = [source.name for source in sources]
            await self._journal.commit("compacted", plan=plan, add=[file], remove=removed, seen=manifest.generation)
        except ArchiveOvertaken as error:
            log.info("%s: compacting came too late: %s", self.name, error)
        except ArchiveDamaged as error:
            log.error("%s: %s", self.name, error)
        else:
            log.info("%s: %d files of %s, %s, are one", self.name, len(sources), first.topic, first.day)
            return
        for left in await self._table.plans(self.name):
            if left.id == plan:
                await give_up(self._journal, left)

    def _merged(self, plan: str, name: str, sources: Sequence[File]) -> tuple[File, bytes]:
        found = {source.name: self._read(source) for source in sources}
        file, data = packed(plan, name, _coalesced(_ordered(sources, found)), 0)
        if file.rows != (rows := sum(source.rows for source in sources)):
            raise ArchiveDamaged(f"{name} would have {file.rows:,} rows of {rows:,}: nothing is replaced")
        return file, data

    def _read(self, source: File) -> pq.ParquetFile:
        data = b""
        with contextlib.suppress(FileNotFoundError), self._place.open(source.name, source.bytes) as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != source.sha256:
            self._spoilt.add(source.name)
            raise ArchiveDamaged(
                f"{source.name} is not what was written, and is not compacted: run `posthouse archive verify`"
            )
        return pq.ParquetFile(io.BytesIO(data))

    async def _delete(self, manifest: Manifest) -> None:
        """What has not been live for long enough; first the objects, then that they are gone."""
        until = self._clock.now() - self._settings.keeps_gone
        names = [name for name, at in manifest.gone.items() if at <= until and name not in manifest.files][:1000]
        if names:
            await asyncio.to_thread(self._place.delete, names)
            await self._journal.commit("deleted", deleted=names)


def lapsed(plan: ArchivePlan, lease: float) -> bool:
    """Whether its lease is over; one that lasts longer than any was given by a clock that was set back since."""
    return not 0 < plan.leased <= 2 * lease


async def give_up(journal: Journal, plan: ArchivePlan) -> None:
    """Say in the log that a plan will never be done."""
    try:
        await journal.commit("given up", aborted=[plan])
    except ArchiveOvertaken:
        return  # somebody else was faster, or it was done after all
    log.warning("%s: %s wrote nothing for too long, its plan %s is given up", journal.name, plan.owner, plan.id)


def put(place: Place, file: File, data: bytes) -> None:
    """Write a file. One of its name is its own, from a try whose answer was lost: nobody else is told the name."""
    if not place.put_new(file.name, data) and place.size(file.name) != len(data):
        raise ArchiveUnavailable(f"{file.name} is there already, and is another file: its plan is made anew")


def _ordered(sources: Sequence[File], found: dict[str, pq.ParquetFile]) -> Iterator[pa.Table]:
    """All rows in the order of partitions and offsets; where files overlap, these are sorted together."""
    partitions = sorted({partition for source in sources for partition in source.partitions})
    for partition in partitions:
        stretches = sorted(
            (
                Stretch(*source.partitions[partition][:2], source, partition)
                for source in sources
                if partition in source.partitions
            ),
            key=lambda stretch: stretch[:2],
        )
        for together in overlapping(stretches):
            if len(together) == 1:
                source = found[together[0].file.name]
                for group in groups_of(source, partition):
                    yield source.read_row_group(group)
            else:
                parts = [
                    found[each.file.name].read_row_groups(groups_of(found[each.file.name], partition))
                    for each in together
                ]
                yield pa.concat_tables(parts).unify_dictionaries().sort_by("offset")


def _coalesced(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same in tables that are worth a group of rows each, of one partition each."""
    held: list[pa.Table] = []
    for table in tables:
        same = held and held[0]["partition"][0] == table["partition"][0]
        if held and (not same or sum(each.nbytes for each in held) >= GROUP):
            yield pa.concat_tables(held).unify_dictionaries()
            held = []
        held.append(table)
    if held:
        yield pa.concat_tables(held).unify_dictionaries()
