"""The state of a saga as two releases share it: what one does not know it keeps, and what was renamed both can read."""

from __future__ import annotations

import types

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse import Policy, Saga, Turn, field, starts
from posthouse.errors import ConfigurationError
from posthouse.processes import SagaType
from posthouse.processes.saga.declaring import saga_type_of


class Line(msgspec.Struct):
    sku: str


class DiscountedLine(Line):
    discount: int = 0


class Before(Saga):
    order_id: str
    points: int = 0
    lines: list[Line] = msgspec.field(default_factory=list)
    by_sku: dict[str, Line] = msgspec.field(default_factory=dict)

    @starts
    def begin(self, turn: Turn) -> None: ...


class Now(Saga):
    """Gained a field, also inside, and renamed one."""

    order_id: str
    score: int = field(was="points", default=0)
    lines: list[DiscountedLine] = msgspec.field(default_factory=list)
    by_sku: dict[str, DiscountedLine] = msgspec.field(default_factory=dict)
    insured: bool = False

    @starts
    def begin(self, turn: Turn) -> None: ...


class After(Saga):
    """Forgot the old name."""

    order_id: str
    score: int = 0

    @starts
    def begin(self, turn: Turn) -> None: ...


def declared(cls: type[Saga]) -> SagaType:
    return saga_type_of(cls, "order", service="shop", correlate="order_id", policy=Policy())


BEFORE, NOW, AFTER = declared(Before), declared(Now), declared(After)


def turn(of: SagaType, stored: bytes, **fields: object) -> bytes:
    """A release takes a turn, in which fields change."""
    saga = of.decode(stored, "7")
    for name, value in fields.items():
        setattr(saga, name, value)
    return of.encode(saga, stored)


def test_an_older_release_keeps_what_it_does_not_know() -> None:
    new = Now(order_id="7", insured=True, lines=[DiscountedLine("a", 3)], by_sku={"a": DiscountedLine("a", 4)})
    stored = turn(BEFORE, NOW.encode(new), points=5)
    assert NOW.decode(stored, "7") == msgspec.structs.replace(new, score=5)


def test_a_deleted_key_of_a_dict_stays_deleted() -> None:
    new = NOW.encode(Now(order_id="7", by_sku={"a": DiscountedLine("a", 4), "b": DiscountedLine("b", 5)}))
    stored = turn(BEFORE, new, by_sku={"b": Line("b")})
    read = NOW.decode(stored, "7")
    assert isinstance(read, Now)
    assert read.by_sku == {"b": DiscountedLine("b", 5)}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a", "b", "c"], [1, 2, 0]),
        (["b"], [2]),
        (["b", "a"], [2, 1]),
        (["x", "b"], [0, 2]),
        (["x", "b", "a"], [0, 2, 1]),
    ],
    ids=["appended", "removed", "turned round", "another in its place", "found again"],
)
def test_items_of_a_list_keep_what_is_unknown_of_them(lines: list[str], expected: list[int]) -> None:
    new = NOW.encode(Now(order_id="7", lines=[DiscountedLine("a", 1), DiscountedLine("b", 2)]))
    read = NOW.decode(turn(BEFORE, new, lines=[Line(sku) for sku in lines]), "7")
    assert isinstance(read, Now)
    assert [(line.sku, line.discount) for line in read.lines] == list(zip(lines, expected, strict=True))


class Item(msgspec.Struct):
    label: str
    id: int
    shelf_id: int = 7
    pieces: int = 1


class PaidItem(Item):
    paid: bool = False


class Card(msgspec.Struct, tag=True):
    digits: str


class Cash(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    till: str


class TokenCard(msgspec.Struct, tag="Card"):
    digits: str
    token: str = ""


class Old(Saga):
    order_id: str
    items: list[Item] = msgspec.field(default_factory=list)
    by: Card | Cash | None = None

    @starts
    def begin(self, turn: Turn) -> None: ...


class New(Saga):
    order_id: str
    items: list[PaidItem] = msgspec.field(default_factory=list)
    by: TokenCard | Cash | None = None

    @starts
    def begin(self, turn: Turn) -> None: ...


def test_an_item_that_changed_is_known_by_its_id_and_another_one_inherits_nothing() -> None:
    old, new = declared(Old), declared(New)
    stored = new.encode(New(order_id="7", items=[PaidItem("pen", 1, paid=True), PaidItem("car", 2)]))
    changed = turn(old, stored, items=[Item("car", 2, pieces=3), Item("pencil", 1), Item("house", 3)])
    read = new.decode(changed, "7")
    assert isinstance(read, New)
    assert [(item.label, item.paid) for item in read.items] == [("car", False), ("pencil", True), ("house", False)]


def test_a_field_that_is_called_type_is_a_field_as_others() -> None:
    class Kind(Saga):
        order_id: str
        type: str = "standard"

        @starts
        def begin(self, turn: Turn) -> None: ...

    class Kinder(Kind):
        paid: bool = False

    stored = turn(declared(Kind), declared(Kinder).encode(Kinder(order_id="7", paid=True)), type="express")
    assert declared(Kinder).decode(stored, "7") == Kinder(order_id="7", type="express", paid=True)


def test_of_two_that_may_be_meant_none_is() -> None:
    new = NOW.encode(Now(order_id="7", lines=[DiscountedLine("a", 1), DiscountedLine("a", 2), DiscountedLine("b", 3)]))
    read = NOW.decode(turn(BEFORE, new, lines=[Line("a"), Line("b")]), "7")
    assert isinstance(read, Now)
    assert [line.discount for line in read.lines] == [0, 3]


def test_what_is_paid_otherwise_now_has_nothing_of_what_it_was_paid_by() -> None:
    old, new = declared(Old), declared(New)
    stored = turn(old, new.encode(New(order_id="7", by=TokenCard("1234", "secret"))), by=Cash("t1"))
    assert b"secret" not in stored
    assert old.decode(stored, "7").by == Cash("t1")  # type: ignore[attr-defined]


def test_a_field_inside_cannot_say_what_it_was() -> None:
    class Inside(msgspec.Struct):
        amount: int = field(was="cents", default=0)

    class Outside(Saga):
        order_id: str
        inside: list[Inside] | None = None

        @starts
        def begin(self, turn: Turn) -> None: ...

    Outside.__annotations__["inside"] = list[Inside] | None
    with pytest.raises(ConfigurationError, match=r"Inside\.amount has field\(was=…\), which only fields of the saga"):
        declared(Outside)


def test_a_renamed_field_is_read_under_either_name_and_stored_under_both() -> None:
    stored = NOW.encode(Now(order_id="7", score=3))
    assert msgspec.json.decode(stored) == {
        "order_id": "7", "score": 3, "points": 3, "lines": [], "by_sku": {}, "insured": False,
    }  # fmt: skip
    assert BEFORE.decode(stored, "7").points == 3  # type: ignore[attr-defined]
    assert NOW.decode(b'{"order_id":"7","points":4}', "7").score == 4  # type: ignore[attr-defined]


CHANGES = st.lists(st.tuples(st.sampled_from(["before", "now"]), st.integers(-3, 3)), max_size=6)
LATER = st.lists(st.tuples(st.sampled_from(["now", "after"]), st.integers(-3, 3)), max_size=6)


@given(first=CHANGES, second=LATER)
def test_whoever_wrote_last_is_heard_by_the_release_before_and_the_next(
    first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    """Two neighbours run side by side, then the next two: any order of turns, and no change is lost."""
    of = {"before": (BEFORE, "points"), "now": (NOW, "score"), "after": (AFTER, "score")}
    stored, last = BEFORE.encode(Before(order_id="7", points=9)), 9
    for release, value in [*first, ("now", 8), *second]:
        saga_type, name = of[release]
        assert getattr(saga_type.decode(stored, "7"), name) == last
        stored, last = turn(saga_type, stored, **{name: value}), value
    assert getattr(NOW.decode(stored, "7"), "score") == last  # noqa: B009


def test_a_number_that_nobody_here_knows_keeps_its_digits() -> None:
    stored = b'{"order_id":"7","score":1,"units":123456789012345678901234567890,"text":"\xc3\xa9\\u0000"}'
    assert turn(AFTER, stored, score=2) == stored.replace(b'"score":1', b'"score":2')


def test_a_state_that_everybody_knows_is_stored_as_ever() -> None:
    assert turn(AFTER, AFTER.encode(After(order_id="7")), score=2) == b'{"order_id":"7","score":2}'


def test_the_old_name_is_inherited_and_has_one_owner() -> None:
    class Child(Now):
        more: int = 0

    assert declared(Child).renamed == {"score": "points"}

    class Two(Now):
        points: int = 0
        rank: int = field(was="points", default=0)

    with pytest.raises(ConfigurationError) as caught:
        declared(Two)
    assert list(caught.value.problems) == [
        "Two: score was 'points', and there is a field that is stored under that name: give the old name one owner",
        "Two: score is one of 2 fields that were 'points': give the old name one owner",
        "Two: rank was 'points', and there is a field that is stored under that name: give the old name one owner",
        "Two: rank is one of 2 fields that were 'points': give the old name one owner",
    ]


@pytest.mark.parametrize("option", ["omit_defaults", "forbid_unknown_fields", "array_like"])
def test_options_that_keep_releases_from_each_other_are_refused(option: str) -> None:
    cls = types.new_class("Odd", (After,), {option: True})
    with pytest.raises(ConfigurationError, match=f"leave {option}=True out"):
        declared(cls)


@pytest.mark.parametrize("was", ["", 7, None])
def test_an_old_name_is_a_word(was: object) -> None:
    with pytest.raises(ConfigurationError, match="it is the name that the field had"):
        field(was=was, default=0)  # type: ignore[call-overload]
