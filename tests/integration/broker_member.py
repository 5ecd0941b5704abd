"""A process on any broker, run by the tests of members that are killed.

`member <scheme> <url> <topic> <report>` receives and acknowledges until SIGTERM; one report line per delivery, written
before the ack. `publisher` publishes until it is killed; one report line per accepted frame.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time

from posthouse.broker import Broker, Delivery, Frame
from posthouse.brokers import open_broker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable

LEASE = 1.0


def opened_broker(scheme: str, url: str) -> Broker:
    """Only its own libraries are imported: many processes are started, and some for a second."""
    clock = SystemClock()
    if scheme == "embedded":
        from posthouse.brokers.embedded import EmbeddedBroker

        return EmbeddedBroker(url, clock=clock, lease=LEASE)
    if scheme == "kafka":
        from posthouse.brokers.kafka import KafkaBroker

        return KafkaBroker(url.removeprefix("kafka://"), clock=clock, lease=2 * LEASE)
    if scheme == "nats":
        from posthouse.brokers.nats import NatsBroker

        return NatsBroker(url, clock=clock, lease=LEASE)
    if scheme in ("postgres", "pooled postgres"):
        from posthouse.brokers.postgres import PostgresBroker

        return PostgresBroker(url, clock=clock, lease=LEASE, connections=2, pooled=scheme != "postgres")
    if scheme == "pubsub":
        from posthouse.brokers.pubsub import PubSubBroker

        return PubSubBroker("shop", emulator=url.partition("=")[2], clock=clock, lease=2)
    if scheme == "rabbitmq":
        from posthouse.brokers.rabbitmq import RabbitmqBroker

        return RabbitmqBroker(url, clock=clock, heartbeat=1)
    if scheme == "redis":
        from posthouse.brokers.redis import RedisBroker

        return RedisBroker(url, clock=clock, lease=LEASE)
    assert scheme == "sqs", scheme
    return open_broker(f"{url}&visibility=3&poll=1", clock=clock)


def line(delivery: Delivery, at: int) -> str:
    frame = delivery.frame
    return f"{at} {frame.id} {frame.key} {frame.body.decode()} {int(delivery.redelivered)}\n"


def opened(report: str) -> int:
    return os.open(report, os.O_CREAT | os.O_APPEND | os.O_WRONLY)


async def member(broker: Broker, topic: str, report_path: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    report = opened(report_path)  # its being there says that SIGTERM is understood from now on
    stream = await broker.subscribe("g", [topic], window=50)
    while not stopped.is_set():
        with contextlib.suppress(BrokerUnavailable):
            deliveries = await stream.receive(20, 0.1)
            at = time.monotonic_ns()
            os.write(report, "".join(line(delivery, at) for delivery in deliveries).encode())
            await asyncio.sleep(0.01)  # the work, so that a kill finds frames in hand
            await stream.ack(deliveries)
    await broker.aclose()


async def publisher(broker: Broker, topic: str, report_path: str) -> None:
    report = opened(report_path)
    for batch in itertools.count():
        ids = [f"{os.getpid()}-{batch}-{n}" for n in range(5)]
        frames = [
            Frame(topic=topic, id=id_, key=f"k{n}", body=f"{batch} {id_ * 20}".encode()) for n, id_ in enumerate(ids)
        ]
        verdicts = await broker.publish(frames)
        accepted = [frame.id for frame, verdict in zip(frames, verdicts, strict=True) if verdict.accepted]
        os.write(report, "".join(f"{id_}\n" for id_ in accepted).encode())


if __name__ == "__main__":
    role, scheme, url, topic, report = sys.argv[1:]
    work = {"member": member, "publisher": publisher}[role]

    async def run() -> None:
        await work(opened_broker(scheme, url), topic, report)

    asyncio.run(run())
