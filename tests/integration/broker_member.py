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
from collections.abc import Callable, Mapping

from posthouse.broker import Broker, Delivery, Frame
from posthouse.brokers import open_broker
from posthouse.brokers.kafka import KafkaBroker
from posthouse.brokers.nats import NatsBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.brokers.redis import RedisBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable

LEASE = 1.0
MAKERS: Mapping[str, Callable[[str], Broker]] = {
    "kafka": lambda url: KafkaBroker(url.removeprefix("kafka://"), clock=SystemClock(), lease=2 * LEASE),
    "nats": lambda url: NatsBroker(url, clock=SystemClock(), lease=LEASE),
    "postgres": lambda url: PostgresBroker(url, clock=SystemClock(), lease=LEASE, pooled=True),
    "pubsub": lambda url: PubSubBroker("shop", emulator=url.partition("=")[2], clock=SystemClock(), lease=2),
    "rabbitmq": lambda url: RabbitmqBroker(url, clock=SystemClock(), heartbeat=1),
    "redis": lambda url: RedisBroker(url, clock=SystemClock(), lease=LEASE),
    "sqs": lambda url: open_broker(f"{url}&visibility=3&poll=1", clock=SystemClock()),
}


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
        frames = [Frame(topic=topic, id=id_, key=f"k{n}", body=b"%d" % batch) for n, id_ in enumerate(ids)]
        verdicts = await broker.publish(frames)
        accepted = [frame.id for frame, verdict in zip(frames, verdicts, strict=True) if verdict.accepted]
        os.write(report, "".join(f"{id_}\n" for id_ in accepted).encode())


if __name__ == "__main__":
    role, scheme, url, topic, report = sys.argv[1:]
    work = {"member": member, "publisher": publisher}[role]

    async def run() -> None:
        await work(MAKERS[scheme](url), topic, report)

    asyncio.run(run())
