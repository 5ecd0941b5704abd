"""Frames taken out of a broker by hand, behind the back of everybody. Each says how many are gone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import aiormq
import nats
import psycopg
import redis.asyncio
from google.pubsub_v1.types import AcknowledgeRequest, PullRequest

from posthouse.brokers.nats.messages import stream_of
from posthouse.brokers.pubsub.client import Client
from posthouse.brokers.rabbitmq.topics import lane_queue


async def from_rabbitmq(url: str, topic: str, group: str, *, lanes: int) -> int:
    """All of the first lane that has any."""
    async with aiormq.connect(url.replace("rabbitmq://", "amqp://")) as connection:
        channel = await connection.channel()
        for lane in range(lanes):
            purged = (await channel.queue_purge(lane_queue(group, topic, lane, lanes))).message_count
            if purged:
                return purged
    return 0


async def from_pubsub(address: str, topic: str, group: str) -> int:
    """Somebody else pulls a message and acknowledges it."""
    wire = Client("shop", emulator=address)
    subscription = wire.subscription(f"{group}.{topic}.sub")
    pulled = await wire.subscriber.pull(PullRequest(subscription=subscription, max_messages=1), timeout=5.0)
    taken = [message.ack_id for message in pulled.received_messages]
    await wire.subscriber.acknowledge(AcknowledgeRequest(subscription=subscription, ack_ids=taken), timeout=5.0)
    await wire.aclose()
    return len(taken)


def from_embedded(path: Path, topic: str) -> int:
    """One in the middle of the log."""
    connection = sqlite3.connect(path)
    with connection:
        lost = connection.execute(
            "DELETE FROM frames WHERE offset = (SELECT min(offset) + 1 FROM frames JOIN topics ON topics.id = frames.topic"
            " WHERE topics.name = ?)",
            (topic,),
        ).rowcount
    connection.close()
    return lost


async def from_postgres(url: str, topic: str) -> int:
    """One in the middle of the log."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        gone = await connection.execute(
            "DELETE FROM posthouse_log.frames WHERE position = (SELECT min(position) + 1 FROM posthouse_log.frames f"
            " JOIN posthouse_log.topics t ON t.id = f.topic WHERE t.name = %s)",
            (topic,),
        )
        return gone.rowcount


async def from_redis(url: str, topic: str) -> int:
    """The second of a lane that has several."""
    client = redis.asyncio.from_url(url)
    try:
        async for lane in client.scan_iter(f"*{topic}*", _type="stream"):
            entries = await client.xrange(lane, count=2) or []
            second = entries[1][0] if len(entries) == 2 else None
            if second is not None:
                return int(await client.xdel(lane, second))
    finally:
        await client.aclose()
    return 0


async def all_from_redis(url: str, topic: str) -> int:
    """Trim every lane."""
    client = redis.asyncio.from_url(url)
    try:
        lanes = [lane async for lane in client.scan_iter(f"{topic}*", _type="stream")]
        return sum([int(await client.xtrim(lane, maxlen=0, approximate=False)) for lane in lanes if b"dlq" not in lane])
    finally:
        await client.aclose()


async def from_nats(url: str, topic: str) -> int:
    """The second of the stream."""
    client = await nats.connect(url)
    try:
        return int(await client.jetstream().delete_msg(stream_of(topic), 2))
    finally:
        await client.close()


async def all_from_nats(url: str, topic: str) -> int:
    """Purge the stream."""
    client = await nats.connect(url)
    try:
        found = (await client.jetstream().stream_info(stream_of(topic))).state.messages
        await client.jetstream().purge_stream(stream_of(topic))
        return int(found)
    finally:
        await client.close()
