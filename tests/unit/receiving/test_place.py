from __future__ import annotations

import pytest

from posthouse.clock import new_id
from posthouse.events import Event
from posthouse.receiving.place import digest_of, is_named, place_of
from posthouse.store import WAITED, HeldEvent, InboxEntry

EVENT = Event(id="e1", type="a.b.v1", source="/a", time="", data=b"{}", tenant="t1", key="k", sequence=3)


def held(name: str = "e1", sequence: int | None = 3, type: str = "a.b.v1", body: bytes = b"body") -> HeldEvent:
    entry = InboxEntry(
        topic="a", tenant="t1", event_id=name, digest=digest_of(b"body"), time=0.0, key="k", sequence=sequence
    )
    return HeldEvent(consumer="c", entry=entry, state="retrying", body=body, type=type)


@pytest.mark.parametrize("waits", [True, False])
def test_an_event_that_waited_for_its_saga_has_a_name_of_its_own_where_events_wait_and_nowhere_else(
    waits: bool,
) -> None:
    digest = digest_of(b"body").hex()
    for name in (f"e1#{new_id()}{WAITED}", f"e1#{new_id()}{WAITED}#{digest}"):
        assert is_named(held(name).entry, EVENT, waits=waits) is waits
    assert is_named(held(f"e1#{digest}").entry, EVENT, waits=waits)
    for name in ("e2", "e1#", f"e1{WAITED}", "e1#x", f"e2#{new_id()}{WAITED}", f"e1#{'0' * 32}"):
        assert not is_named(held(name).entry, EVENT, waits=waits)


def test_a_row_is_in_turn_with_its_number_and_intact_with_its_digest() -> None:
    assert place_of(held(), EVENT, loose=False)[2:4] == (True, True)
    assert not place_of(held(sequence=None), EVENT, loose=False).in_turn
    assert not place_of(held(body=b"other"), EVENT, loose=False).intact
    refused = place_of(held("frame-7", None, type=""), EVENT, loose=False)
    assert (refused.name, refused.in_turn) == ("e1", True), "its row says nothing: it is let in as what it says it is"
