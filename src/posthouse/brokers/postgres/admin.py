"""What the log holds, and how a part of it is removed."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.brokers.postgres.client import Database, Fetch
from posthouse.brokers.postgres.schema import UNREAD
from posthouse.errors import BrokerError
from posthouse.survey import PASSING, Resource, partition_drift

CHUNK = 10_000

# Every topic with its partitions and the frames it has.
TOPICS = """
    SELECT t.name, t.partitions, coalesce(sum(h.stored - h.pruned), 0)::bigint
    FROM {s}.topics t LEFT JOIN {s}.heads h ON h.topic = t.id GROUP BY t.id, t.name, t.partitions"""
# Every place of a group, what it has not acknowledged, and whether a member reads there now.
PLACES = f"""
    SELECT t.name, c.grp, sum(f.there - d.done)::bigint, EXISTS (
        SELECT FROM {{s}}.members m WHERE m.grp = c.grp AND m.topic = t.id AND m.until > clock_timestamp())
    FROM {{s}}.cursors c JOIN {{s}}.topics t ON t.id = c.topic
    JOIN {{s}}.heads h ON h.topic = c.topic AND h.partition = c.partition {UNREAD}
    GROUP BY t.id, t.name, c.grp"""
# Groups are locked first, as everywhere in this log; members hear of it by the version.
LOCK_GROUP = "UPDATE {s}.groups SET version = version + 1 WHERE name = $1"
# A group that nobody comes back to.
FORGET_GROUP = "DELETE FROM {s}.groups WHERE name = $1"
TOPIC = "SELECT id FROM {s}.topics WHERE name = $1"
AT_WORK = "SELECT name FROM {s}.members WHERE grp = $1 AND topic = $2 AND until > clock_timestamp()"
DELETE_MEMBERS = "DELETE FROM {s}.members WHERE grp = $1 AND topic = $2"
DELETE_CURSORS = "DELETE FROM {s}.cursors WHERE grp = $1 AND topic = $2"
# Whoever publishes holds a head until its commit, and whoever joins holds them all: no reader slips in.
LOCK_HEADS = "SELECT partition FROM {s}.heads WHERE topic = $1 ORDER BY partition FOR UPDATE"
READERS = "SELECT DISTINCT grp FROM {s}.cursors WHERE topic = $1 ORDER BY grp"
DELETE_HEADS = "DELETE FROM {s}.heads WHERE topic = $1"
DELETE_TOPIC = "DELETE FROM {s}.topics WHERE id = $1"
# Frames without a topic, also those that an interrupted removal left; numbers of topics are never given again.
DELETE_ORPHANS = """
    WITH gone AS (
        DELETE FROM {s}.frames WHERE ctid = ANY (ARRAY(
            SELECT f.ctid FROM {s}.frames f WHERE NOT EXISTS (SELECT FROM {s}.topics t WHERE t.id = f.topic) LIMIT $1))
        RETURNING 1)
    SELECT count(*) FROM gone"""


def called(topic: str, group: str | None) -> str:
    return f"topic {topic}" if group is None else f"group {group} in {topic}"


async def found(database: Database, partitions: int) -> list[Resource]:
    """Every topic and every place of a group."""
    if not await database.exists():
        return []
    topics = [
        Resource(topic=name, called=called(name, None), frames=frames, drift=partition_drift(count, partitions))
        for name, count, frames in await database.fetch("looking", TOPICS)
    ]
    places = [
        Resource(topic=name, group=group, called=called(name, group), frames=unread, at_work=at_work)
        for name, group, unread, at_work in await database.fetch("looking", PLACES)
    ]
    return [*topics, *places]


async def remove(database: Database, resources: Sequence[Resource]) -> None:
    """All of them or none; the frames follow afterwards."""
    async with database.together("removing topics") as fetch:
        for resource in sorted(
            resources, key=lambda resource: (resource.group is None, resource.group or "", resource.topic)
        ):
            rows = await fetch(TOPIC, resource.topic)
            if rows and resource.group is not None:
                await _remove_place(fetch, rows[0]["id"], resource.topic, resource.group)
            elif rows:
                await _remove_topic(fetch, rows[0]["id"], resource.topic)
    while (await database.fetch("removing frames", DELETE_ORPHANS, CHUNK))[0]["count"] == CHUNK:
        pass


async def _remove_place(fetch: Fetch, number: int, topic: str, group: str) -> None:
    await fetch(LOCK_GROUP, group)
    if await fetch(AT_WORK, group, number):
        raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
    await fetch(DELETE_MEMBERS, group, number)
    await fetch(DELETE_CURSORS, group, number)
    if group.startswith(PASSING):
        await fetch(FORGET_GROUP, group)


async def _remove_topic(fetch: Fetch, number: int, topic: str) -> None:
    await fetch(LOCK_HEADS, number)
    readers = [row["grp"] for row in await fetch(READERS, number)]
    if readers:
        raise BrokerError(f"topic {topic!r} is read by {', '.join(readers)}: remove these groups first")
    await fetch(DELETE_HEADS, number)
    await fetch(DELETE_TOPIC, number)
