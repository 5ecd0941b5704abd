"""Given what has happened, when a decision is made, then this happens, or an error."""

from __future__ import annotations

import pytest

from posthouse import Payload
from posthouse.errors import ConfigurationError
from posthouse.testing import deciding
from tests.unit.processes.stream.folios import (
    Billing,
    Charged,
    Closed,
    Folio,
    FolioClosed,
    FolioOpened,
    charging,
    opening,
)

OPENED = FolioOpened("f1", "Ann")


@pytest.fixture
def billing() -> Billing:
    return Billing()


def test_a_specification_reads_as_a_sentence_and_goes_on(billing: Billing) -> None:
    story = deciding(billing.folios).given().when(opening).then(OPENED)
    story = story.when(charging(30)).then(Charged("f1", 30))
    story = story.when(lambda folio: [Charged("f1", 1), FolioClosed("f1")]).then(Charged("f1", 1), FolioClosed("f1"))
    assert story.state == Folio("Ann", 31, (30, 1), open=False)
    assert story.when(charging(1)).then(Closed) is story
    assert story.when(charging(1)).then(Closed("the folio is closed")) is story
    story.when(opening).then()


@pytest.mark.parametrize(
    "expected", [(), (Charged("f1", 2),), (Charged("f1", 1), Charged("f1", 1)), (OPENED,), (Closed,), (Closed("x"),)]
)
def test_anything_else_than_what_happened_fails(billing: Billing, expected: tuple[Charged, ...]) -> None:
    outcome = deciding(billing.folios).given(OPENED).when(charging(1))
    with pytest.raises(AssertionError, match="expected"):
        outcome.then(*expected)


@pytest.mark.parametrize("expected", [(), (Charged("f1", 1),), (ZeroDivisionError,), (Closed("other words"),)])
def test_any_other_error_than_the_expected_one_fails(billing: Billing, expected: tuple[Charged, ...]) -> None:
    outcome = deciding(billing.folios).given().when(charging(1))
    with pytest.raises(AssertionError, match="the decision raised Closed"):
        outcome.then(*expected)


def test_events_that_no_store_would_take_fail_here_too(billing: Billing) -> None:
    @billing.service.event("folio.printed.v1", key="folio_id")
    class Printed(Payload):
        folio_id: str

    decider = deciding(billing.folios)
    with pytest.raises(AssertionError, match="none of the events of 'folio'"):
        decider.given(Printed("f1"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(AssertionError, match="none of the events of 'folio'"):
        decider.given().when(lambda folio: Printed("f1"))  # type: ignore[arg-type,return-value]  # the mistake
    with pytest.raises(AssertionError, match="cannot be said"):
        decider.given().when(lambda folio: Charged("f1", "many"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(AssertionError, match=r"events of several things \('f1', 'f2'\)"):
        decider.given(OPENED, Charged("f2", 1))


def test_a_decision_that_would_wait_is_an_error_like_others(billing: Billing) -> None:
    async def slow(folio: Folio) -> Charged:
        raise AssertionError("it must not be run")

    deciding(billing.folios).given().when(slow).then(ConfigurationError)  # type: ignore[arg-type]  # the mistake
