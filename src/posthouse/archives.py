"""Archives: what operators ask of the archive of an App: how far it is, whether it is sound, to let go of what is too old."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.app import App
from posthouse.clock import day_of, new_id
from posthouse.errors import ArchiveError, ConfigurationError
from posthouse.history.archive.opening import group_of, lacking
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import Reach
from posthouse.opened.process import process_name
from posthouse.redaction import redacted
from posthouse.store import Action

CLASSES = ("hot", "warm", "cold", "unread")


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One topic: what of it is archived, what is on its way, and for how long the oldest of that waits. `lost`: the log let go of
    frames that the archive had still to read."""

    topic: str
    reach: Reach | None
    pending: int
    oldest: float | None
    lost: bool


class ArchiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an archive stands. `following`: the last entry of its log that the store knows; `plans` are those under way, and since how
    many seconds the oldest is."""

    url: str
    group: str
    generation: int
    following: int
    files: int
    bytes: int
    gone: int
    plans: int
    oldest_plan: float
    topics: Sequence[TopicStatus]

    @property
    def gaps(self) -> list[str]:
        """What the log had and the archive never will, in words."""
        return [
            f"{one.topic}: the log let go of events before they were archived: keep it longer, and `posthouse outbox resend` sends what the "
            "outbox still has"
            for one in self.topics
            if one.lost
        ]


class Expiry(msgspec.Struct, frozen=True, kw_only=True):
    """What is let go of one class: files whose whole day is older than so many seconds."""

    retention: str
    before: str
    files: int
    events: int
    bytes: int


def place_of(app: App) -> Place:
    """Where its archive is; ConfigurationError where it has none."""
    place = app.opened.ports.archive
    if place is None:
        raise ConfigurationError(
            f"{app.opened.name} has no archive: say where, App(…, archive='s3://bucket/folder') or POSTHOUSE_ARCHIVE"
        )
    return place


async def status(app: App) -> ArchiveStatus:
    """How it stands. Makes and changes nothing."""
    try:
        from posthouse.history.archive.log import current
        from posthouse.history.archive.reader import reach_of
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    place, group = place_of(app), group_of(app.services[0].name)
    manifest, plans = await current(place), await app.store.archives.plans(group)
    topics = (app.opened.building.archived or {})[group]
    progress, reached = await app.broker.progress(group, topics), reach_of(manifest)
    known = await app.store.archives.known(group)
    return ArchiveStatus(
        url=redacted(place.url),
        group=group,
        generation=manifest.generation,
        following=0 if known is None else known.generation,
        files=len(manifest.files),
        bytes=sum(file.bytes for file in manifest.files.values()),
        gone=len(manifest.gone),
        plans=len(plans),
        oldest_plan=max((plan.age for plan in plans), default=0.0),
        topics=[
            TopicStatus(
                topic=topic,
                reach=reached.get(topic),
                pending=progress[topic].pending if topic in progress else 0,
                oldest=progress[topic].oldest if topic in progress else None,
                lost=topic in progress and progress[topic].dropped,
            )
            for topic in sorted({*topics, *reached})
        ],
    )


async def expire(
    app: App, older_than: Mapping[str, float], *, dry_run: bool = True, by: str = "", why: str = ""
) -> list[Expiry]:
    """Let go of files of these classes whose day, of the log, ended more than so many seconds ago; with `dry_run` only say which. One
    entry of the log, and one in that of the operators; the objects go later, when nobody can be reading them any more."""
    try:
        from posthouse.history.archive.journal import Journal
        from posthouse.history.archive.log import current
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    if wrong := sorted(older_than.keys() - set(CLASSES)):
        raise ConfigurationError(f"{wrong[0]!r} is no class of events: {', '.join(CLASSES)}")
    place, group, now = place_of(app), group_of(app.services[0].name), app.clock.now()
    manifest = await current(place)
    days = {name: day_of(now - seconds).isoformat() for name, seconds in older_than.items()}
    old = [file for file in manifest.files.values() if file.retention in days and file.day < days[file.retention]]
    found = [
        Expiry(
            retention=name,
            before=day,
            files=sum(file.retention == name for file in old),
            events=sum(file.rows for file in old if file.retention == name),
            bytes=sum(file.bytes for file in old if file.retention == name),
        )
        for name, day in days.items()
    ]
    if dry_run or not old:
        return found
    member = f"{process_name()} {new_id()}"
    journal = Journal(group, place, app.store.archives, app.clock, member)
    action = Action(
        verb="archive expire", by=by, why=why, target=redacted(place.url), count=sum(file.rows for file in old)
    )
    async with app.actions.doing(action):
        await journal.open()
        await journal.commit("expired", remove=[file.name for file in old], seen=manifest.generation)
    return found


async def adopt(app: App, *, by: str = "", why: str = "") -> int:
    """Let the store take an archive for its own that it does not know, because it is new or another was lost: which events are in it
    is read from its files. How many entries its log has. Whoever else writes that archive is refused from then on only by chance: stop
    it before."""
    try:
        from posthouse.history.archive.journal import Journal, read_marker
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    place, group = place_of(app), group_of(app.services[0].name)
    marker = await asyncio.to_thread(read_marker, place)
    if marker is None:
        raise ArchiveError(f"{redacted(place.url)} has no archive to adopt: `posthouse run --only archive` begins one")
    action = Action(verb="archive adopt", by=by, why=why, target=redacted(place.url), count=1)
    async with app.actions.doing(action):
        await app.store.archives.move(group, marker.id)
        journal = Journal(group, place, app.store.archives, app.clock, f"{process_name()} {new_id()}")
        await journal.open()
    return journal.generation
