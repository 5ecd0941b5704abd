"""The proof of an erasure in Kafka's log, where nothing can be deleted by hand."""

from __future__ import annotations

from pathlib import Path

from posthouse.erasure import erase, prove
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.servers.kafka import KafkaServer
from tests.kit.waiting import eventually


async def test_what_kafka_keeps_about_somebody_opens_no_more(tmp_path: Path, kafka_server: KafkaServer) -> None:
    hotel = Hotel(tmp_path, broker=kafka_server.url)
    async with hotel.app.running():
        await hotel.register("g1", "Ada")
        await hotel.register("g2", "Bob")
        await eventually(lambda: len(hotel.heard) == 2)
        before = {one.place: (one.boxes, one.opened, one.note) for one in await prove(hotel.app, "t1", "g1")}
        assert before["log"] == (2, 2, "")
        done = await erase(hotel.service, "t1", "g1", why="asked")
        after = {one.place: (one.boxes, one.opened, one.note) for one in done.places}
        assert (after["log"], done.proven) == ((2, 0, ""), True)
        other = {one.place: (one.boxes, one.opened) for one in await prove(hotel.app, "t1", "g2")}
        assert other["log"] == (2, 2)
        await drained(hotel.service)
