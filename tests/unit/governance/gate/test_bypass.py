"""Leave to pass is on record, for one change, with an incident."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.gate.bypass import Bypass, bypass_of, bypasses_file, read_bypasses
from posthouse.governance.gate.report import Report
from tests.unit.governance.gate.shop import PlacedByOwner, PlacedWithoutTotal, frozen, orders, placed, report

AT = datetime(2026, 11, 15, tzinfo=UTC)


def broken(payload: type = PlacedWithoutTotal) -> Report:
    return report(frozen(orders()), frozen(orders(placed(payload))))


def leave(found: Report, incident: str = "INC-7") -> Bypass:
    return bypass_of(found.standing, incident=incident, reason="pay day", by="ann", at=AT)


def test_leave_lets_exactly_that_change_pass_and_is_shown() -> None:
    found = broken()
    given = leave(found)
    allowed = found.allowing([given])
    assert not found.passes
    assert allowed.passes
    assert list(allowed.bypassed.values()) == [given]
    assert not broken(PlacedByOwner).allowing([given]).passes


def test_leave_that_is_not_needed_is_not_shown() -> None:
    assert report(frozen(orders()), frozen(orders())).allowing([leave(broken())]).bypassed == {}


def test_the_record_reads_back() -> None:
    given = leave(broken())
    assert list(read_bypasses(bypasses_file([given]))) == [given]


@pytest.mark.parametrize("incident", ["", "because", "1234", "INC-", "INC 12"])
def test_leave_without_an_incident_is_refused(incident: str) -> None:
    with pytest.raises(ConfigurationError, match="needs the id of an incident, as in INC-1234"):
        leave(broken(), incident)


def test_leave_without_reason_or_name_is_refused_with_both_problems() -> None:
    with pytest.raises(ConfigurationError) as refused:
        bypass_of((), incident="INC-1", reason=" ", by="", at=AT)
    assert len(refused.value.problems) == 2


def test_a_record_that_was_written_by_hand_without_an_incident_is_refused() -> None:
    text = bypasses_file([leave(broken())]).replace(b"INC-7", b"please")
    with pytest.raises(ConfigurationError, match="holds a bypass by ann without the id of an incident: 'please'"):
        read_bypasses(text)
    with pytest.raises(ConfigurationError, match=r"bypasses\.json cannot be read"):
        read_bypasses(b"<<<<<<<")
