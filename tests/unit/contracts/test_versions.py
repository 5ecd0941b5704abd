"""Casts between versions: pure functions, chained."""

from __future__ import annotations

from datetime import date

import pytest

from posthouse import Payload, Service
from posthouse.contracts import event_type_of
from posthouse.contracts.deprecation import deprecations
from posthouse.contracts.versions import Cast, cast_of, chain, lift, missing_links, whole
from posthouse.errors import ConfigurationError, ContractError

hotel = Service("hotel")
reader = Service("reader")


@hotel.event("stay.booked.v1", key="stay", deprecated=date(2027, 1, 31))
class V1(Payload):
    stay: str
    guest: str


@hotel.event("stay.booked.v2", key="stay")
class V2(Payload):
    stay: str
    first: str
    last: str


@hotel.event("stay.booked.v3", key="stay")
class V3(Payload):
    stay: str
    first: str
    last: str
    nights: int


@hotel.event("stay.booked.v10")
class Unkeyed(Payload):
    stay: str


@hotel.event("stay.ended.v2", key="stay")
class Ended(Payload):
    stay: str


@reader.external("hotel.stay.opened.v1")
class Opened1(Payload):
    stay: str


@reader.external("hotel.stay.opened.v2")
class Opened2(Payload):
    stay: str


@reader.external("hotel.stay.opened.v3")
class Opened3(Payload):
    stay: str


def second(old: V1) -> V2:
    first, last = old.guest.split(" ")
    return V2(stay=old.stay, first=first, last=last)


def third(old: V2) -> V3:
    return V3(stay=old.stay, first=old.first, last=old.last, nights=1)


UP = {
    "hotel.stay.booked.v1": cast_of("upcast", V1, V2, second),
    "hotel.stay.booked.v2": cast_of("upcast", V2, V3, third),
}


def names(steps: object) -> list[str]:
    assert isinstance(steps, tuple)
    return [step.target.name[-2:] for step in steps if isinstance(step, Cast)]


@pytest.mark.parametrize(
    ("start", "wanted", "found"),
    [
        ("hotel.stay.booked.v1", {"hotel.stay.booked.v3"}, ["v2", "v3"]),
        ("hotel.stay.booked.v2", {"hotel.stay.booked.v3"}, ["v3"]),
        ("hotel.stay.booked.v1", {"hotel.stay.booked.v2", "hotel.stay.booked.v3"}, ["v2"]),
        ("hotel.stay.booked.v3", {"hotel.stay.booked.v3"}, []),
        ("hotel.stay.booked.v1", {"hotel.stay.booked.v4"}, []),
        ("hotel.stay.booked.v1", set(), []),
    ],
)
def test_a_chain_leads_to_the_nearest_version_that_is_wanted(start: str, wanted: set[str], found: list[str]) -> None:
    assert names(chain(UP, start, wanted)) == found


def test_all_casts_from_a_version_on_are_found() -> None:
    assert names(whole(UP, "hotel.stay.booked.v1")) == ["v2", "v3"]
    assert names(whole(UP, "hotel.stay.booked.v3")) == []


def test_a_value_goes_through_every_cast_in_order() -> None:
    steps = whole(UP, "hotel.stay.booked.v1")
    assert lift(steps, V1(stay="s", guest="Ada Byron")) == V3(stay="s", first="Ada", last="Byron", nights=1)
    assert lift((), V1(stay="s", guest="Ada")) == V1(stay="s", guest="Ada")


def test_a_cast_that_raises_breaks_the_contract_and_says_where() -> None:
    with pytest.raises(
        ContractError,
        match=r"second, which makes hotel\.stay\.booked\.v2 of hotel\.stay\.booked\.v1, failed: ValueError",
    ):
        lift(whole(UP, "hotel.stay.booked.v1"), V1(stay="s", guest="Ada"))


def test_a_cast_that_gives_something_else_breaks_the_contract() -> None:
    wrong = cast_of("upcast", V1, V2, lambda old: old)  # type: ignore[arg-type, return-value] # the mistake under test
    with pytest.raises(ContractError, match="gave a V1, not a V2"):
        wrong(V1(stay="s", guest="g"))


def test_versions_of_two_facts_are_not_cast() -> None:
    with pytest.raises(ConfigurationError, match="are two facts, use a handler"):
        cast_of("upcast", V1, Ended, lambda old: Ended(stay=old.stay))


def test_an_upcast_goes_up_and_a_downcast_down() -> None:
    with pytest.raises(ConfigurationError, match=r"upcast goes to a later version.*: use downcast"):
        cast_of("upcast", V2, V1, lambda new: V1(stay=new.stay, guest=new.first))
    with pytest.raises(ConfigurationError, match=r"downcast goes to an earlier version.*: use upcast"):
        cast_of("downcast", V1, V2, second)
    with pytest.raises(ConfigurationError, match="upcast goes to a later version"):
        cast_of("upcast", V1, V1, lambda same: same)


def test_versions_that_are_published_together_both_have_a_key_or_neither() -> None:
    with pytest.raises(ConfigurationError, match="only one of them has a key"):
        cast_of("downcast", Unkeyed, V1, lambda new: V1(stay=new.stay, guest=""))
    assert cast_of("upcast", V1, Unkeyed, lambda old: Unkeyed(stay=old.stay)).target.key is None


def test_a_cast_that_leads_to_no_handler_is_a_missing_link() -> None:
    one = {"hotel.stay.booked.v1": UP["hotel.stay.booked.v1"]}
    [problem] = missing_links(one, {"hotel.stay.booked.v3"}, [])
    assert problem.startswith(
        "hotel.stay.booked.v1 is lifted to hotel.stay.booked.v2, which no handler takes: declare the"
    )
    assert missing_links(UP, {"hotel.stay.booked.v3"}, []) == []


def test_a_version_below_the_lifted_ones_that_is_declared_for_reading_is_a_missing_link() -> None:
    casts = {"hotel.stay.opened.v2": cast_of("upcast", Opened2, Opened3, lambda old: Opened3(stay=old.stay))}
    known = [event_type_of(cls) for cls in (Opened1, Opened2, Opened3)]
    handled = {"hotel.stay.opened.v3"}
    [problem] = missing_links(casts, handled, known)  # type: ignore[arg-type] # event types are invariant
    assert "hotel.stay.opened.v1 is declared and neither handled nor lifted" in problem
    assert missing_links(casts, {*handled, "hotel.stay.opened.v1"}, known) == []  # type: ignore[arg-type]
    assert missing_links({}, handled, known) == []  # type: ignore[arg-type]


def test_a_deprecated_version_is_named_with_its_date_and_its_successor() -> None:
    known = list(hotel.declared.catalogue)
    assert deprecations(known, date(2027, 1, 30), past=True) == []
    assert deprecations(known, date(2027, 1, 30), past=False) == [
        "hotel.stay.booked.v1 will be deprecated from 2027-01-31: move to hotel.stay.booked.v2"
    ]
    assert deprecations(known, date(2027, 1, 31), past=True) == [
        "hotel.stay.booked.v1 is deprecated since 2027-01-31: move to hotel.stay.booked.v2"
    ]
