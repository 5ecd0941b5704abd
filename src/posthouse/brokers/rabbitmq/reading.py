"""Reading frames of AMQP: one message that the driver cannot decode must not end the connection.

The server hands out what publishers said, byte for byte: times that no calendar has, names and routes that are no UTF-8. The
driver then gives up the connection, the server hands the message out again, and nobody behind it gets anything.
"""

from __future__ import annotations

import asyncio
import struct

import pamqp.frame
from aiormq import Connection
from aiormq.connection import FrameReceiver, ReceivedFrame
from aiormq.exceptions import AMQPConnectionError, InvalidFrameError
from pamqp import constants
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from posthouse.brokers.rabbitmq.messages import DEFECT

_DELIVER = struct.pack(">HH", 60, 60)


class Line(Connection):
    """A connection that reads whatever messages the server has."""

    async def _Connection__reader(self, frame_receiver: FrameReceiver) -> None:
        await super()._Connection__reader(Reader(frame_receiver.reader))  # type: ignore[misc]


class Reader(FrameReceiver):
    async def get_frame(self) -> ReceivedFrame:
        if self.reader.at_eof():
            raise StopAsyncIteration
        try:
            head = await self.reader.readexactly(constants.FRAME_HEADER_SIZE)
            raw = head + await self.reader.readexactly((pamqp.frame.frame_parts(head)[2] or 0) + 1)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise AMQPConnectionError(f"the server ended the connection: {error!r}") from error
        try:
            return pamqp.frame.unmarshal(raw)
        except Exception as error:  # of whatever kind: tables in tables can be too deep, too
            return _defective(raw, error)


def _defective(raw: bytes, error: Exception) -> ReceivedFrame:
    """What is known of a message anyway: its size, its tag. Raises for frames that no publisher had a hand in."""
    kind, channel, _ = pamqp.frame.frame_parts(raw)
    payload = raw[constants.FRAME_HEADER_SIZE : -1]
    if kind == constants.FRAME_HEADER:
        header = ContentHeader(properties=Basic.Properties(headers={DEFECT: str(error)[:500]}))
        header.class_id, header.weight, header.body_size = struct.unpack(">HHQ", payload[:12])
        return len(raw), channel, header
    if kind == constants.FRAME_METHOD and payload.startswith(_DELIVER):
        return len(raw), channel, _deliver(payload[len(_DELIVER) :])
    raise InvalidFrameError(str(error)) from error


def _deliver(arguments: bytes) -> Basic.Deliver:
    """Consumer, tag, whether it came before, exchange and route."""
    consumer, rest = _short(arguments)
    tag, bits = struct.unpack(">QB", rest[:9])
    exchange, rest = _short(rest[9:])
    route, _ = _short(rest)
    return Basic.Deliver(consumer, tag, bool(bits & 1), exchange, route)


def _short(data: bytes) -> tuple[str, bytes]:
    size = data[0]
    return data[1 : 1 + size].decode(errors="backslashreplace"), data[1 + size :]
