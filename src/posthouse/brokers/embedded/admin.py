"""What the log holds, and how a part of it is removed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from posthouse.brokers.embedded.schema import UNREAD
from posthouse.errors import BrokerError
from posthouse.survey import PASSING, Resource, partition_drift

# Every topic with its partitions and the frames it has; removed ones keep a row without a name of theirs.
TOPICS = """
    SELECT t.name, t.partitions, coalesce(sum(h.stored - h.pruned), 0) FROM topics t LEFT JOIN heads h ON h.topic = t.id
    WHERE t.name NOT GLOB char(127) || '*' GROUP BY t.id"""
# Every place of a group, what it has not acknowledged, and whether a member reads there at a moment.
PLACES = f"""
    SELECT t.name, c.grp, sum({UNREAD}),
        EXISTS (SELECT 1 FROM members m WHERE m.grp = c.grp AND m.topic = c.topic AND m.until > ?)
    FROM cursors c JOIN topics t ON t.id = c.topic JOIN heads h ON h.topic = c.topic AND h.partition = c.partition
    GROUP BY c.topic, c.grp"""
TOPIC = "SELECT id FROM topics WHERE name = ?"
AT_WORK = "SELECT count(*) FROM members WHERE grp = ? AND topic = ? AND until > ?"
READERS = "SELECT DISTINCT grp FROM cursors WHERE topic = ? ORDER BY grp"
# A member that was paused for longer than its lease hears of it by the version.
CHANGED = "UPDATE groups SET version = version + 1 WHERE name = ?"
# Nobody comes back to it, so nobody needs to hear of it.
FORGET_GROUP = "DELETE FROM groups WHERE name = ?"
DELETE_CURSORS = "DELETE FROM cursors WHERE grp = ? AND topic = ?"
DELETE_MEMBERS = "DELETE FROM members WHERE grp = ? AND topic = ?"
DELETE_FRAMES = "DELETE FROM frames WHERE topic = ?"
DELETE_HEADS = "DELETE FROM heads WHERE topic = ?"
# The number is never given again: a process that still knows it must find nothing, not another topic.
BURY = "UPDATE topics SET name = char(127) || id WHERE id = ?"


def called(topic: str, group: str | None) -> str:
    return f"topic {topic}" if group is None else f"group {group} in {topic}"


def found(connection: sqlite3.Connection, partitions: int, now: float) -> list[Resource]:
    """Every topic and every place of a group."""
    topics = [
        Resource(topic=name, called=called(name, None), frames=frames, drift=partition_drift(count, partitions))
        for name, count, frames in connection.execute(TOPICS)
    ]
    places = [
        Resource(topic=name, group=group, called=called(name, group), frames=unread, at_work=bool(at_work))
        for name, group, unread, at_work in connection.execute(PLACES, (now,))
    ]
    return [*topics, *places]


def remove(connection: sqlite3.Connection, resources: Sequence[Resource], now: float) -> None:
    """Inside a transaction: all of them, or none."""
    for resource in sorted(resources, key=lambda resource: resource.group is None):
        row = connection.execute(TOPIC, (resource.topic,)).fetchone()
        if row is None:
            continue
        if resource.group is not None:
            _remove_place(connection, row[0], resource.topic, resource.group, now)
        else:
            _remove_topic(connection, row[0], resource.topic)


def _remove_place(connection: sqlite3.Connection, number: int, topic: str, group: str, now: float) -> None:
    (at_work,) = connection.execute(AT_WORK, (group, number, now)).fetchone()
    if at_work:
        raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
    for statement in (DELETE_CURSORS, DELETE_MEMBERS):
        connection.execute(statement, (group, number))
    connection.execute(FORGET_GROUP if group.startswith(PASSING) else CHANGED, (group,))


def _remove_topic(connection: sqlite3.Connection, number: int, topic: str) -> None:
    readers = [group for (group,) in connection.execute(READERS, (number,))]
    if readers:
        raise BrokerError(f"topic {topic!r} is read by {', '.join(readers)}: remove these groups first")
    for statement in (DELETE_FRAMES, DELETE_HEADS, BURY):
        connection.execute(statement, (number,))
