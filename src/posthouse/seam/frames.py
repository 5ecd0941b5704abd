"""From a stored row to the frame that the broker gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.broker import Frame, Verdict
from posthouse.errors import DecodeError
from posthouse.events import Codec, codec_of
from posthouse.redaction import words_of
from posthouse.store import OutboxRow
from posthouse.store.outbox import DAMAGED

DEAD_LETTERS = ".dlq"
"""How the topics of dead letters end."""

MARKS = frozenset(("content-type", "ce-specversion"))
"""Headers by one of which a codec tells its own."""

UNFIT = "no frame can be made of its row: "
"""How the reason begins where no broker was asked."""


def frame_of(row: OutboxRow) -> Frame:
    """What the broker gets: the stored bytes with the number that the store gave them."""
    return frames_of([row])[0]


def frames_of(rows: Sequence[OutboxRow]) -> list[Frame]:
    """The same for many, and with the id of their row, by which it is found again. Rows of one kind share their headers, and with
    them the codec. A dead letter stays as it came: it has the number and the id of the row that it was published from. So does a
    row that somebody wrote by hand, and that is no event of ours: without a number there is nothing that it would have to say."""
    frames: list[Frame] = []
    known: Mapping[str, str] | None = None
    codec: Codec | None = None
    for row in rows:
        headers, body, key = row.headers, row.body, row.key
        if row.sequence is not None or (row.id and not row.topic.endswith(DEAD_LETTERS)):
            if headers is not known:
                codec = _codec_of(row)
                known = headers if codec is not None and headers else None  # without headers it is the body that tells
            if codec is not None:
                headers, body = codec.stamp(headers, body, row.sequence, row.lineage, str(row.id) if row.id else None)
        key = None if key is None else f"{row.tenant}:{key}"
        frames.append(Frame(topic=row.topic, id=row.event_id, key=key, headers=headers, body=body))
    return frames


def _codec_of(row: OutboxRow) -> Codec | None:
    """What wrote a row; None for one without a number that no codec wrote: each says in the headers that it did. Raises DecodeError
    where a number has to be said and cannot be, and for a row that was damaged where it lies."""
    if row.sequence is not None:
        return codec_of(row.headers, row.body)
    if MARKS.isdisjoint(row.headers):
        return None
    try:
        return codec_of(row.headers, row.body)
    except DecodeError:
        if row.headers.get("content-type", "").startswith(DAMAGED):
            raise
        return None


def fit_for_broker(rows: Sequence[OutboxRow]) -> tuple[Sequence[Frame], Mapping[int, Verdict]]:
    """The frames of those rows that have one, and by their place what is to be said of the others: somebody changed them where they
    lie. One such row costs its neighbours nothing."""
    try:
        return frames_of(rows), {}
    except Exception:  # whatever is in a row that nobody should have touched; below it is told which one
        frames: list[Frame] = []
        unfit: dict[int, Verdict] = {}
        for place, row in enumerate(rows):
            try:
                frames.append(frame_of(row))
            except Exception as error:
                unfit[place] = Verdict(False, f"{UNFIT}{words_of(error)}", final=True)
        return frames, unfit
