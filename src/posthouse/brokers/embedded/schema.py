"""The tables of the log, and every statement that touches them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from posthouse.errors import ConfigurationError

VERSION = 1
APPLICATION = 0x50484C47
"""`PHLG` in the file's header: tells our file from any other SQLite file."""

TABLES = (
    # A topic's number of partitions is fixed when it is made: changing it would move keys and break their order.
    """CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        partitions INTEGER NOT NULL
    )""",
    # Frames of a partition are numbered without gaps; `stored` is the last number, `pruned` the last one deleted.
    """CREATE TABLE heads (
        topic INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        stored INTEGER NOT NULL DEFAULT 0,
        pruned INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (topic, partition)
    ) WITHOUT ROWID""",
    # AUTOINCREMENT: an offset is never given twice, not even after every frame was deleted.
    """CREATE TABLE frames (
        offset INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        number INTEGER NOT NULL,
        stored_at REAL NOT NULL,
        id TEXT NOT NULL,
        key TEXT,
        headers BLOB,
        body BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX frames_in_order ON frames (topic, partition, number)",
    # `version` changes whenever the members of a group have something to look at: a join, a leave, a seek.
    """CREATE TABLE groups (
        name TEXT PRIMARY KEY,
        version INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE members (
        grp TEXT NOT NULL,
        topic INTEGER NOT NULL,
        name TEXT NOT NULL,
        until REAL NOT NULL,
        PRIMARY KEY (grp, topic, name)
    ) WITHOUT ROWID""",
    # Cursor and lease of one partition. `epoch` grows with every new owner and every seek, and every ack names the one
    # it belongs to. `reach` is the owner's window and `boot` the start of the machine under which it took over; `touched`
    # is the last number that may have been handed out. `done` are numbers behind the cursor that were acknowledged when the
    # last owner left (JSON); others up to `unsure` may have been dealt with though nobody said so.
    """CREATE TABLE cursors (
        grp TEXT NOT NULL,
        topic INTEGER NOT NULL,
        partition INTEGER NOT NULL,
        acked INTEGER NOT NULL,
        touched INTEGER NOT NULL,
        started INTEGER NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT,
        reach INTEGER NOT NULL DEFAULT 0,
        boot TEXT,
        done TEXT NOT NULL DEFAULT '[]',
        unsure INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (grp, topic, partition)
    ) WITHOUT ROWID""",
)

# Topics and publishing

ADD_TOPIC = "INSERT OR IGNORE INTO topics (name, partitions) VALUES (?, ?)"
ADD_HEAD = "INSERT OR IGNORE INTO heads (topic, partition) VALUES (?, ?)"
TOPIC = "SELECT id, partitions FROM topics WHERE name = ?"
TOPIC_NAMES = "SELECT name FROM topics"
HEADS = "SELECT partition, stored FROM heads WHERE topic = ?"
SET_HEAD = "UPDATE heads SET stored = ? WHERE topic = ? AND partition = ?"
ADD_FRAME = (
    "INSERT INTO frames (topic, partition, number, stored_at, id, key, headers, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

# Reading and acknowledging

# Texts as bytes: the driver refuses the whole page where one of them is no UTF-8 any more.
READ = """
    SELECT number, offset, CAST(stored_at AS REAL), CAST(id AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB),
    CAST(body AS BLOB) FROM frames
    WHERE topic = ? AND partition = ? AND number BETWEEN ? AND ? ORDER BY number"""
# What is stored under a number: there is a second one of it only in a log that was put back and went another way since.
MARK = """
    SELECT CAST(f.stored_at AS REAL), CAST(f.id AS BLOB) FROM heads h
    LEFT JOIN frames f ON f.topic = h.topic AND f.partition = h.partition AND f.number = ?3
    WHERE h.topic = ?1 AND h.partition = ?2 AND h.stored >= ?3"""
# By the owner and its epoch, and never past what is stored.
ACK = """
    UPDATE cursors SET acked = ?1 WHERE grp = ?2 AND topic = ?3 AND partition = ?4 AND owner = ?5 AND epoch = ?6
    AND acked < ?1 AND ?1 <= (SELECT stored FROM heads h WHERE h.topic = ?3 AND h.partition = ?4)"""

# Membership

ADD_GROUP = "INSERT OR IGNORE INTO groups (name) VALUES (?)"
GROUP_VERSION = "SELECT version FROM groups WHERE name = ?"
GROUP_CHANGED = "UPDATE groups SET version = version + 1 WHERE name = ?"
# A new group starts behind what retention has deleted; `:latest` moves one that nobody ever read to the end.
ADD_CURSORS = """
    INSERT OR IGNORE INTO cursors (grp, topic, partition, acked, touched, started)
    SELECT ?, topic, partition, pruned, pruned, pruned FROM heads WHERE topic = ?"""
START_AT_END = """
    UPDATE cursors SET (acked, touched, started) = (
        SELECT stored, stored, stored FROM heads
        WHERE heads.topic = cursors.topic AND heads.partition = cursors.partition)
    WHERE grp = ? AND topic = ? AND epoch = 0"""
JOIN = """
    INSERT INTO members (grp, topic, name, until) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET until = excluded.until"""
LEAVE = "DELETE FROM members WHERE grp = ? AND name = ?"
STRIKE_OFF = "DELETE FROM members WHERE grp = ? AND topic = ? AND name = ?"
MEMBERS = "SELECT topic, name, until FROM members WHERE grp = ?"
CURSORS = "SELECT topic, partition, owner, epoch, acked FROM cursors WHERE grp = ? ORDER BY topic, partition"
# The one before did not give it back: whatever it may have had in hand is handed out as a repeat, but nothing that is
# stored later. A power cut may have undone acknowledgements as well, so after one the cursor no longer tells how far
# that was.
# A cursor behind the end of the log belongs to frames that were lost: nobody knows which of those that are there now were
# read, so all of them come again. `:anew`: the file is another one than the member knew.
TAKE = """
    UPDATE cursors SET
        acked = CASE WHEN acked > h.stored THEN h.pruned ELSE acked END,
        touched = CASE
            WHEN :anew OR acked > h.stored THEN h.stored
            WHEN owner IS NULL THEN touched
            WHEN boot = :boot THEN min(h.stored, max(touched, acked + reach))
            ELSE h.stored
        END,
        done = CASE WHEN :anew OR acked > h.stored OR owner IS NOT NULL AND boot IS NOT :boot THEN '[]' ELSE done END,
        unsure = CASE
            WHEN :anew OR acked > h.stored THEN h.stored
            WHEN owner IS NULL THEN unsure
            WHEN boot = :boot THEN min(h.stored, max(unsure, acked + reach))
            ELSE h.stored
        END,
        owner = :member, reach = :reach, boot = :boot, epoch = epoch + 1
    FROM heads h
    WHERE h.topic = cursors.topic AND h.partition = cursors.partition
        AND grp = :group AND cursors.topic = :topic AND cursors.partition = :partition
    RETURNING epoch, acked, touched, done, unsure"""
GIVE_BACK = """
    UPDATE cursors SET owner = NULL, acked = ?1, touched = max(touched, ?2), done = ?8, unsure = ?9
    WHERE grp = ?3 AND topic = ?4 AND partition = ?5 AND owner = ?6 AND epoch = ?7
    AND ?1 <= (SELECT stored FROM heads h WHERE h.topic = ?4 AND h.partition = ?5)"""

# Seeking, progress and retention

FIRST_AT_OFFSET = """
    SELECT number FROM frames INDEXED BY frames_in_order
    WHERE topic = ? AND partition = ? AND offset >= ? ORDER BY number LIMIT 1"""
FIRST_AT_TIME = """
    SELECT number FROM frames INDEXED BY frames_in_order
    WHERE topic = ? AND partition = ? AND stored_at >= ? ORDER BY number LIMIT 1"""
# What was handed out before a seek and not acknowledged may come again, so all of it counts as touched.
MOVE = """
    INSERT INTO cursors (grp, topic, partition, acked, touched, unsure, started, epoch) VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0, 1)
    ON CONFLICT DO UPDATE SET acked = excluded.acked, touched = excluded.touched, unsure = excluded.unsure, done = '[]',
        reach = 0, epoch = epoch + 1"""
# Frames that are there and not acknowledged, of a cursor `c` and up to a number: the numbers of those that somebody deleted
# by hand are in the range as well. Without a cursor all that are there.
_UNREAD = """(
    (SELECT count(*) FROM frames f WHERE f.topic = h.topic AND f.partition = h.partition
        AND f.number > max(h.pruned, coalesce(c.acked, 0)) AND f.number <= {upto})
    - (SELECT count(*) FROM json_each(coalesce(c.done, '[]')) d JOIN frames f ON f.number = d.value
        WHERE f.topic = h.topic AND f.partition = h.partition
        AND f.number > max(h.pruned, coalesce(c.acked, 0)) AND f.number <= {upto}))"""
UNREAD = _UNREAD.format(upto="h.stored")
_UNSURE = _UNREAD.format(
    upto="coalesce(CASE WHEN c.owner IS NULL THEN c.unsure ELSE max(c.unsure, c.acked + c.reach) END, 0)"
)
# When the first of them was stored.
_OLDEST = """
    (SELECT CAST(f.stored_at AS REAL) FROM frames f WHERE f.topic = h.topic AND f.partition = h.partition
        AND f.number > max(h.pruned, coalesce(c.acked, 0))
        AND f.number NOT IN (SELECT value FROM json_each(coalesce(c.done, '[]'))) ORDER BY f.number LIMIT 1)"""
PROGRESS = f"""
    SELECT h.stored, h.pruned, c.acked, c.started, {UNREAD}, {_UNSURE}, {_OLDEST}
    FROM topics t JOIN heads h ON h.topic = t.id
    LEFT JOIN cursors c ON c.grp = ? AND c.topic = h.topic AND c.partition = h.partition WHERE t.name = ?"""
PASSED = """
    SELECT h.topic, h.partition, h.pruned, coalesce(c.acked, h.stored) AS passed
    FROM heads h LEFT JOIN (SELECT topic, partition, min(acked) AS acked FROM cursors GROUP BY topic, partition) c
    ON c.topic = h.topic AND c.partition = h.partition WHERE h.pruned < passed"""
# Partitions whose cursor is behind the end of the log, and their groups.
AHEAD = """
    SELECT count(*), coalesce(group_concat(DISTINCT c.grp), '') FROM cursors c
    JOIN heads h ON h.topic = c.topic AND h.partition = c.partition WHERE c.acked > h.stored"""
AGES = """
    SELECT number, stored_at FROM frames
    WHERE topic = ? AND partition = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT ?"""
DELETE = "DELETE FROM frames WHERE topic = ? AND partition = ? AND number BETWEEN ? AND ?"
SET_PRUNED = "UPDATE heads SET pruned = ? WHERE topic = ? AND partition = ?"


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in a new file, or prove that the file is a log this code can read. Inside a transaction."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == APPLICATION and version <= VERSION:
        return
    if application == APPLICATION:
        raise ConfigurationError(
            f"{path} was written by a newer Posthouse (log format {version}, this one reads up to {VERSION}):"
            " upgrade the posthouse package of this process"
        )
    if tables:
        raise ConfigurationError(f"{path} is a SQLite file of something else: give the log a file of its own")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
