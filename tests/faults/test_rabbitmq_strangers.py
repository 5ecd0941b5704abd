"""A stranger's message on RabbitMQ whose headers just fit: its dead letter must fit too, or nothing of the service is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiormq
from pamqp.commands import Basic

from posthouse.app import app_of
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.clock import SystemClock
from tests.conformance.broker_path import House
from tests.faults.test_rabbitmq_links import applied, at_work
from tests.kit.servers.rabbitmq import RabbitmqServer
from tests.kit.waiting import eventually

JUST_FITS = 130_900
"""Bytes of one header; with what is around it a server takes 131,072."""


async def say(url: str, topic: str) -> None:
    async with aiormq.connect(url.replace("rabbitmq://", "amqp://")) as connection:
        channel = await connection.channel()
        properties = Basic.Properties(headers={"h": "x" * JUST_FITS})
        said = await channel.basic_publish(
            b"junk", exchange=topic, routing_key="", properties=properties, mandatory=True
        )
        assert isinstance(said, Basic.Ack)


async def test_the_dead_letter_of_headers_that_just_fit_fits_too_and_others_are_sent(
    rabbitmq_server: RabbitmqServer, tmp_path: Path
) -> None:
    def broker() -> RabbitmqBroker:
        return RabbitmqBroker(rabbitmq_server.url, clock=SystemClock(), partitions=4, settle=0)

    house = House(tmp_path, (broker(), broker()))
    async with at_work(*house.services):
        await house.place("o1", 0)
        assert await applied(house, 1, within=20) == 1
        await say(rabbitmq_server.url, house.topic)
        await eventually(lambda: house.held(), within=20)
        await house.place("o1", *range(1, 10))
        assert await applied(house, 10, within=20) == 10
        async with asyncio.timeout(20):
            while sum((await app_of(house.billing).store.counts()).unsent.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await house.held() == [(None, "quarantined")]
        assert await app_of(house.billing).store.outbox.stuck() == [], "the dead letter was sent"
