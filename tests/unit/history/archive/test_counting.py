"""Each event is there once, and the numbers of every key are whole, as far as nothing that expired may have had them."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.broker import Delivery, Frame
from posthouse.events import STRUCTURED, Event, timestamp
from posthouse.history.archive.counting import NAMED, counting
from posthouse.history.archive.files import File, encoded, table_of
from posthouse.history.archive.finding import Finding
from posthouse.history.archive.rows import Row, row_of

TOPIC = "shop.orders.order"


def row(place: int, number: int | None, *, key: str = "k", id: str = "") -> Row:
    """An event at a position, with a number."""
    event = Event(
        id=id or f"{key}-{place}", type=f"{TOPIC}.placed.v1", source="/shop", data=b"{}", time=timestamp(0.0), tenant="t1",
        key=key, sequence=number,
    )  # fmt: skip
    found = STRUCTURED.encode(event)
    frame = Frame(topic=TOPIC, id=event.id, key=event.ordering_key, headers=found.headers, body=found.body)
    return row_of(Delivery(frame=frame, position=place, stored_at=1.0))


def file(*rows: Row) -> File:
    return encoded("p", f"data/hot/{TOPIC}/1970-01-01/p.parquet", rows)[0]


def told(*files: Sequence[Row], expired: Sequence[File] = ()) -> list[Finding]:
    with counting(expired) as count:
        found = [finding for rows in files for finding in count.add(TOPIC, table_of(rows))]
        return [*found, *count.findings()]


def words(findings: Sequence[Finding]) -> list[str]:
    return [finding.words.split(",")[0] for finding in findings]


def test_a_number_that_is_there_twice_hides_none_that_lacks() -> None:
    found = words(told([row(1, 1), row(2, 1), row(3, 3)]))
    assert found == ["1 numbers of lineage 1", "1 numbers lack between 1 and 3 of lineage 1"]


def test_an_event_that_is_in_two_files_is_named_whether_it_has_a_number_or_none() -> None:
    for number in (None, 1):
        found = told([row(1, number, id="one")], [row(9, number, id="one")])
        assert [(each.kind, each.name) for each in found] == [("double", f"{TOPIC} one")]


def test_a_number_may_lack_only_where_something_expired_between_its_neighbours() -> None:
    old = file(row(1, 1), row(2, 2), row(4, 4, key="z"))
    assert told([row(3, 3), row(9, 4)], expired=[old]) == []
    assert words(told([row(5, 3), row(6, 5)], expired=[old])) == ["1 numbers lack between 3 and 5 of lineage 1"]
    assert told([row(3, 3), row(6, 5)], expired=[old]) == []


def test_of_many_keys_some_are_named_and_the_others_counted() -> None:
    rows = [row(2 * place + of, 1 + 2 * of, key=f"k{place:02}") for place in range(NAMED + 3) for of in (0, 1)]
    found = told(rows)
    assert len(found) == NAMED + 1
    assert found[-1].words == "and 3 more keys with numbers that lack"


def test_topics_do_not_share_numbers() -> None:
    with counting(()) as count:
        found = [*count.add("a", table_of([row(1, 1)])), *count.add("b", table_of([row(1, 2)])), *count.findings()]
    assert found == []
