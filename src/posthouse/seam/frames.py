"""From a stored row to the frame that the broker gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.broker import Frame, Verdict
from posthouse.events import codec_of
from posthouse.redaction import words_of
from posthouse.store import OutboxRow

DEAD_LETTERS = ".dlq"
"""How the topics of dead letters end."""

UNFIT = "no frame can be made of its row: "
"""How the reason begins where no broker was asked."""


def frame_of(row: OutboxRow) -> Frame:
    """What the broker gets: the stored bytes with the number that the store gave them."""
    return frames_of([row])[0]


def frames_of(rows: Sequence[OutboxRow]) -> list[Frame]:
    """The same for many, and with the id of their row, by which it is found again. Rows of one kind share their headers, and with
    them the codec. A dead letter stays as it came: it has the number and the id of the row that it was published from."""
    frames: list[Frame] = []
    known: Mapping[str, str] | None = None
    for row in rows:
        headers, body, key = row.headers, row.body, row.key
        if row.sequence is not None or (row.id and not row.topic.endswith(DEAD_LETTERS)):
            if headers is not known:
                stamp = codec_of(headers, body).stamp
                known = headers or None  # without headers it is the body that tells
            headers, body = stamp(headers, body, row.sequence, row.lineage, str(row.id) if row.id else None)
        key = None if key is None else f"{row.tenant}:{key}"
        frames.append(Frame(topic=row.topic, id=row.event_id, key=key, headers=headers, body=body))
    return frames


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
