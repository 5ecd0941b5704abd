"""Handing out: a delivery is made of whatever a broker stored, and that never fails.

What raises for one record would be raised again each time the group comes to it, and everything behind it would wait for
ever. So it becomes a delivery with a defect, which a consumer sets aside and acknowledges like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from posthouse.broker import Delivery, Frame

LATEST = 253_402_300_799.0
"""The last second of the year 9999: nobody can say a later time."""
WORDS = 500
"""Characters of an error that are kept."""
_headers = msgspec.json.Decoder(dict[str, str])

Row = tuple[int, int, float, bytes, bytes | None, bytes | None, bytes]
"""Number, position, when it was stored, id, key, headers and body, as a log in a database keeps them."""


def handed(
    make: Callable[[], Frame],
    *,
    topic: str,
    body: object,
    position: int | str,
    stored_at: float,
    redelivered: bool,
    token: object,
    defect: str = "",
) -> Delivery:
    """The frame that `make` gives; where it raises, the bare `body` under the record's place. `defect`: what is known to be
    wrong already."""
    try:
        frame = make()
        if not isinstance(frame.body, bytes):
            raise TypeError(f"the body is {type(frame.body).__name__}, and no bytes")
    except Exception as error:  # whatever it is, it belongs to this one record: its neighbours go on
        defect = defect or f"{type(error).__name__}: {error}"[:WORDS]
        frame = Frame(topic=topic, id=f"{topic}:{position}", body=_bytes(body))
    return Delivery(
        frame=frame,
        position=position,
        stored_at=moment(stored_at),
        redelivered=redelivered,
        token=token,
        defect=defect,
    )


def handed_rows(partition: object, topic: str, touched: int, rows: Iterable[Row]) -> list[Delivery]:
    """The deliveries of a log in a database: numbers up to `touched` may have been handed out before."""
    return [
        handed(
            partial(frame_of, topic, id_, key, headers, body),
            topic=topic,
            body=body,
            position=position,
            stored_at=stored_at,
            redelivered=number <= touched,
            token=(partition, number),
        )
        for number, position, stored_at, id_, key, headers, body in rows
    ]


def frame_of(topic: str, id: bytes, key: bytes | None, headers: bytes | None, body: bytes) -> Frame:
    """From the columns of a log in a database; the headers are JSON. Raises when they are spoiled."""
    return Frame(
        topic=topic,
        id=id.decode(),
        key=None if key is None else key.decode(),
        body=body,
        headers=_headers.decode(headers) if headers else {},
    )


def moment(stored_at: object) -> float:
    """A time that can be written down and compared, whatever was stored as one."""
    if not isinstance(stored_at, int | float) or not stored_at > 0:  # also for what is no number
        return 0.0
    return min(stored_at, LATEST)


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else b"" if body is None else str(body).encode(errors="backslashreplace")
