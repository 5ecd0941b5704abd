"""Rows that are encoded before their seal is known: with it they are what they would have been, encoded once more."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from posthouse.clock import ManualClock
from posthouse.events import CODECS, Codec, Encoded, Event, codec_of
from posthouse.seam import Seam
from posthouse.seam.drafts import DraftedRow, drafted
from posthouse.seam.seals import SEAL, Arrival, Seals
from posthouse.store import OutboxRow
from posthouse.store.outbox import Number
from tests.kit.signing import Keys, numbered

TOPIC = "shop.order"
KEYED = Event(
    id="e1", type="shop.order.placed.v1", source="/shop", data=b'{"n":1}', time="2026-11-18T20:09:52.396355Z", tenant="t1",
    key="ä", extensions={"flag": True, "count": -3},
)  # fmt: skip
EVENTS = [KEYED, msgspec.structs.replace(KEYED, key=None, data=b"")]
NUMBERS = [(1, 1), (2**62, 1), (7, 3), (7, 2**31 - 1)]


class Wrapped:
    """A format of somebody else's, in which nothing stands as it is."""

    def encode(self, event: Event[bytes]) -> Encoded:
        body = CODECS["structured"].encode(event).body
        return Encoded({}, base64.b85encode(body))


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    keys = Keys(tmp_path)
    keys.make("shop-1")
    found = keys.signing("shop-1").applied(Seam(), ManualClock(1_800_000_000.0), "shop").sealing
    assert found is not None
    return found


def draft_of(seals: Seals, event: Event[bytes], codec: Codec | Wrapped) -> DraftedRow:
    def encode(event: Event[bytes]) -> OutboxRow:
        headers, body = codec.encode(event)
        return OutboxRow(topic=TOPIC, tenant="t1", event_id=event.id, headers=headers, body=body, key=event.key)

    return drafted(seals.draft(TOPIC, event), encode)


@pytest.mark.parametrize("event", EVENTS, ids=["keyed", "plain"])
@pytest.mark.parametrize(("sequence", "lineage"), NUMBERS)
@pytest.mark.parametrize("name", ["structured", "binary"])
def test_a_draft_becomes_the_bytes_that_encoding_the_sealed_fact_gives(
    seals: Seals, name: str, event: Event[bytes], sequence: int, lineage: int
) -> None:
    codec, number = CODECS[name], Number(event.id, True, sequence if event.key else None, lineage)
    draft = draft_of(seals, event, codec)
    row = draft.sealed(number)
    extensions = seals.seal(TOPIC, numbered(event, number)).extensions
    assert (row.headers, row.body) == tuple(codec.encode(msgspec.structs.replace(event, extensions=extensions)))
    assert (row.sequence, row.lineage) == (number.sequence, number.lineage)
    assert len(row.body) + len(str(row.headers)) <= len(draft.row.body) + len(str(draft.row.headers))


def test_a_stand_in_is_as_long_as_the_longest_seal_and_proves_nothing(seals: Seals) -> None:
    draft = seals.draft(TOPIC, KEYED)
    stand_in = str(draft.event.extensions[SEAL])
    assert len(stand_in) == len(draft.sealed(2**63 - 2, 2**31 - 1)) > len(draft.sealed(1, 1))
    with pytest.raises(Exception, match="forged"):
        seals.prove(Arrival(TOPIC, 0.0), draft.event)


def test_a_fact_that_quotes_a_seal_keeps_its_words(seals: Seals) -> None:
    stand_in = str(seals.draft(TOPIC, KEYED).event.extensions[SEAL])
    quoting = msgspec.structs.replace(KEYED, data=msgspec.json.encode({"said": stand_in}))
    row = draft_of(seals, quoting, CODECS["structured"]).sealed(Number("e1", True, 1, 1))
    read = codec_of(row.headers, row.body).decode(row.headers, row.body)
    assert read.data == quoting.data
    assert seals.prove(Arrival(TOPIC, 0.0), numbered(read, Number("e1", True, 1, 1))).data == quoting.data


def test_a_format_that_hides_the_seal_is_written_once_more(seals: Seals) -> None:
    row = draft_of(seals, KEYED, Wrapped()).sealed(Number("e1", True, 4, 1))
    read = CODECS["structured"].decode({}, base64.b85decode(row.body))
    assert seals.prove(Arrival(TOPIC, 0.0), numbered(read, Number("e1", True, 4, 1))).sequence == 4
