"""Stream: one replication connection, with a slot that the server drops when the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from struct import Struct
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
import psycopg
from psycopg import pq

from posthouse.clock import SystemClock
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.local.naming import given_name
from posthouse.local.url import joined
from posthouse.stores.postgres.wal.pgoutput import Committed, Decoder, Inserted

FEEDBACK = 5.0
"""Seconds between two words to the server, which gives up on the silent (`wal_sender_timeout`)."""
SILENCE = 30.0
"""Seconds without a word from the server, which is asked to answer, after which the connection counts as lost."""
AT_ONCE = 500
"""Messages read before others on the event loop have their turn."""
EPOCH = 946_684_800.0
"""PostgreSQL counts time from the year 2000."""

HEADER, KEEPALIVE, STATUS = Struct("!cQQQ"), Struct("!cQQB"), Struct("!cQQQqB")

# A slot of this connection alone; the answer comes when all transactions open now have ended.
CREATE_SLOT = 'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT'

# From where the slot stands.
START = "START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', publication_names '\"{publication}\"'{more})"


class Reached(msgspec.Struct, frozen=True, gc=False):
    """The server has nothing for us up to this place in the log that it has not sent."""

    end: int


Message = Inserted | Committed | Reached


class LogStream:
    """What is committed to the outbox from the moment the slot is made, in the order of the commits."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[object, ...]], slot: str) -> None:
        self.slot = slot
        self._connection = connection
        self._wire = connection.pgconn
        self._decoder = Decoder()
        self._received = 0
        self._confirmed = 0
        self._spoke_at = self._heard_at = _time()
        self._asked = False

    async def make_slot(self) -> None:
        """Wait until the server has found a place in the log from which it can decode everything."""
        with _mapped("making a replication slot"):
            await self._connection.execute(CREATE_SLOT.format(slot=self.slot))

    async def start(self, publication: str) -> None:
        """Let the server send."""
        more = ", binary 'true'" if self._connection.info.server_version >= 140_000 else ""
        with _mapped("streaming the log"):
            self._wire.send_query(START.format(slot=self.slot, publication=publication, more=more).encode())
            await self._flushed()
            while self._wire.is_busy():
                await self._readable(SILENCE)
                self._wire.consume_input()
            result = self._wire.get_result()
            if result is None or result.status != pq.ExecStatus.COPY_BOTH:
                raise StoreError(f"the server does not stream: {result.get_error_message() if result else 'no answer'}")

    async def receive(self, seconds: float) -> Sequence[Message]:
        """What has come, at the latest after `seconds`; empty when nothing has. Raises StoreUnavailable when the
        connection is lost, or the server dropped the slot."""
        with _mapped("streaming the log"):
            found = self._read()
            if not found:
                if await self._readable(seconds):
                    self._heard_at = _time()
                    self._wire.consume_input()
                    found = self._read()
                elif _time() - self._heard_at > SILENCE:
                    raise StoreUnavailable(f"streaming the log: the server was silent for {SILENCE:g} s")
            return found

    async def confirm(self, accepted: int) -> None:
        """Tell the server that all up to `accepted` was dealt with, when there is reason to speak."""
        now = _time()
        news = accepted > self._confirmed and now - self._spoke_at >= 0.2
        if not (news or self._asked or now - self._spoke_at >= FEEDBACK):
            return
        ask = not self._asked and now - self._heard_at >= FEEDBACK
        self._confirmed, self._asked, self._spoke_at = accepted, False, now
        received = max(self._received, accepted)
        moment = int((SystemClock().now() - EPOCH) * 1e6)
        with _mapped("streaming the log"):
            self._wire.put_copy_data(STATUS.pack(b"r", received, accepted, accepted, moment, ask))
            await self._flushed()

    def _read(self) -> list[Message]:
        found: list[Message] = []
        for _ in range(AT_ONCE):
            size, view = self._wire.get_copy_data(1)
            if size == 0:
                break
            if size < 0:
                result = self._wire.get_result()
                reason = result.get_error_message() if result is not None else ""
                raise StoreUnavailable(f"streaming the log: {reason or 'the server ended the stream'}")
            if (message := self._message(bytes(view))) is not None:
                found.append(message)
        return found

    def _message(self, data: bytes) -> Message | None:
        if data[:1] == b"k":
            _, end, _, asked = KEEPALIVE.unpack(data)
            self._asked = self._asked or bool(asked)
            self._received = max(self._received, end)
            return Reached(end)
        message = self._decoder.read(data[HEADER.size :])
        if isinstance(message, Committed):
            self._received = max(self._received, message.end)
        return message

    async def _flushed(self) -> None:
        while self._wire.flush():  # noqa: ASYNC110 - rare, and the server reads what we say also while it cannot send
            await asyncio.sleep(0.01)

    async def _readable(self, seconds: float) -> bool:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._wire.socket, ready.set)
        try:
            async with asyncio.timeout(seconds):
                await ready.wait()
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._wire.socket)


@contextlib.asynccontextmanager
async def connected(url: str, slot: str, patience: float, name: str) -> AsyncIterator[LogStream]:
    """A replication connection to the server of `url`, for the length of a block."""
    with _mapped("connecting for replication"):
        async with asyncio.timeout(patience):
            connection = await psycopg.AsyncConnection.connect(
                libpq_url(url),
                autocommit=True,
                replication="database",
                client_encoding="utf8",
                application_name=given_name(url) or name,
            )
    try:
        yield LogStream(connection, slot)
    finally:
        await connection.close()


def libpq_url(url: str) -> str:
    """The same place for libpq, which takes settings of the server in one option of their own; asyncpg takes each by
    its name."""
    parts = urlsplit(url)
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    given = parse_qsl(parts.query, keep_blank_values=True)
    kept = {name: value for name, value in given if name in known}
    settings = [("bytea_output", "hex"), *((name, value) for name, value in given if name not in known)]
    spoken = [f"-c {name}={_escaped(value)}" for name, value in settings]
    kept["options"] = " ".join(filter(None, (kept.get("options"), *spoken)))
    kept.setdefault("target_session_attrs", "read-write")
    return joined(parts._replace(query=urlencode(kept, quote_via=quote)))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


@contextlib.contextmanager
def _mapped(doing: str) -> Iterator[None]:
    """Turn psycopg's errors into ours: whatever it is, the log cannot be followed now."""
    try:
        yield
    except (psycopg.Error, OSError, TimeoutError) as error:
        raise StoreUnavailable(f"{doing}: {str(error).strip() or type(error).__name__}") from error


def _time() -> float:
    return asyncio.get_running_loop().time()
