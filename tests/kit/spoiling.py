"""Records of which no frame can be made, in a broker's own storage: a stranger's, or ours with other bits."""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiormq
import confluent_kafka
import pamqp.encode
import psycopg
import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable

NO_TEXT = b"n\xff\xfe"


def in_embedded(path: Path, topic: str, column: str = "headers") -> None:
    connection = sqlite3.connect(path)
    with connection:
        spoiled = connection.execute(
            f"UPDATE frames SET {column} = CAST(? AS {'BLOB' if column == 'headers' else 'TEXT'}) WHERE offset ="
            " (SELECT min(offset) + 1 FROM frames JOIN topics ON topics.id = frames.topic WHERE topics.name = ?)",
            (b'{"n":"\xff"}', topic),
        ).rowcount
    connection.close()
    assert spoiled == 1


async def in_postgres(url: str, topic: str, column: str = "headers") -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        spoiled = await connection.execute(
            f"UPDATE posthouse_log.frames SET {column} = set_byte({column}, 3, 255) WHERE position = (SELECT min(position) + 1"
            " FROM posthouse_log.frames f JOIN posthouse_log.topics t ON t.id = f.topic WHERE t.name = %s)",
            (topic,),
        )
        assert spoiled.rowcount == 1


class _Part(ctypes.Structure):
    """`rd_kafka_vu_t`: what a part of a record is, and the words of its value."""

    _fields_ = (("kind", ctypes.c_int), ("words", ctypes.c_uint64 * 8))


def in_kafka(servers: str, topic: str) -> None:
    """A record with a header whose name is no UTF-8: only the driver's library itself can say it."""
    (library,) = Path(f"{confluent_kafka.__path__[0]}.libs").glob("librdkafka*")
    kafka = ctypes.CDLL(str(library))
    for function in (kafka.rd_kafka_conf_new, kafka.rd_kafka_new, kafka.rd_kafka_produceva):
        function.restype = ctypes.c_void_p
    conf, words = ctypes.c_void_p(kafka.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    assert kafka.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), words, 512) == 0, words.value
    producer = ctypes.c_void_p(kafka.rd_kafka_new(0, conf, words, 512))
    texts = [ctypes.create_string_buffer(text) for text in (topic.encode(), b"junk", NO_TEXT, b"v")]
    at = [ctypes.addressof(text) for text in texts]
    said = ((1, at[0]), (3, 0), (4, at[1], 4), (7, 2), (9, at[2], at[3], 1))  # topic, partition, value, copy it, header
    parts = (_Part * len(said))()
    for part, (kind, *values) in zip(parts, said, strict=True):
        part.kind = kind
        for number, value in enumerate(values):
            part.words[number] = value
    try:
        assert kafka.rd_kafka_produceva(producer, parts, ctypes.c_size_t(len(said))) is None
        assert kafka.rd_kafka_flush(producer, 20_000) == 0
    finally:
        kafka.rd_kafka_destroy(producer)


async def in_rabbitmq(url: str, topic: str, kind: str = "name") -> None:
    """`kind` is what is wrong with it. The driver has to be bent to say it."""
    now = datetime.now(UTC)
    said: dict[str, FieldTable] = {"time": {"cloudEvents:time": 2**62}, "name": {"@@": "v"}, "deep": {"d": 1}}
    properties = Basic.Properties(headers={"x": now} if kind == "value" else said.get(kind))
    properties.timestamp = now if kind == "timestamp" else None
    async with aiormq.connect(url.replace("rabbitmq://", "amqp://")) as connection:
        channel = await connection.channel()
        with _bent(kind):
            answer = await channel.basic_publish(
                b"junk",
                exchange=topic,
                routing_key="0.0.@@" if kind == "route" else "",
                properties=properties,
                mandatory=True,
            )
    assert isinstance(answer, Basic.Ack)


@contextlib.contextmanager
def _bent(kind: str) -> Iterator[None]:
    """Two at signs are no UTF-8, times are past all calendars, and a 1 is a table of tables of tables."""
    short, table = pamqp.encode.short_string, b""
    for _ in range(2_000):
        table = b"\x01tF" + struct.pack(">I", len(table)) + table

    def short_string(value: str) -> bytes:
        return short(value).replace(b"@@", b"\xff\xfe")

    with pytest.MonkeyPatch.context() as patch:
        for name, method in (("short_string", short_string), ("timestamp", lambda _: b"\xff" * 8)):
            patch.setattr(pamqp.encode, name, method)
        patch.setitem(pamqp.encode.METHODS, "shortstr", short_string)
        patch.setitem(pamqp.encode.METHODS, "timestamp", lambda _: b"\xff" * 8)
        if kind == "deep":
            deep = b"F" + struct.pack(">I", len(table)) + table
            patch.setattr(pamqp.encode, "table_integer", lambda _: deep)
        yield
