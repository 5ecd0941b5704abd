"""What a person reads about calls of a saga that are out."""

from __future__ import annotations

import pytest

from posthouse.cli.saga.advice import advice
from posthouse.cli.saga.showing import call_text
from posthouse.store.sagas import CallOut, SagaRow, SagaStatus
from tests.unit.processes.saga.payouts import Bank, claims_of

OUT = CallOut(step="paid", turn=2, tries=2, begun_at=100.0, due_at=105.0)
UNKNOWN = CallOut(step="paid", turn=2, tries=3, begun_at=100.0, error="TimeoutError: no answer", given_up=True)
OF = claims_of(Bank())[0].declared.saga_types["claim"]


@pytest.mark.parametrize(
    ("call", "now", "words"),
    [
        (CallOut(step="paid", turn=2, due_at=100.0), 100.0, "paid  noted, not begun since"),
        (OUT, 102.0, "paid  an answer is due in 3 s; begun 2 times"),
        (OUT, 165.0, "paid  overdue for 1 min"),
        (UNKNOWN, 165.0, "given up: nobody knows what came of it (begun 3 times, the last one failed: TimeoutError"),
    ],
)
def test_a_call_is_told_by_how_it_stands(call: CallOut, now: float, words: str) -> None:
    assert call_text(call, now).plain.startswith(words) or words in call_text(call, now).plain


def sentences(status: SagaStatus, call: CallOut) -> str:
    row = SagaRow(saga="claim", tenant="t1", id="c1", status=status, calls=(call,))
    return "\n".join(advice(OF, row, "app"))


@pytest.mark.parametrize("status", ["partial", "compensation_failed"])
def test_an_unknown_outcome_is_not_to_be_taken_for_a_failure(status: SagaStatus) -> None:
    said = sentences(status, UNKNOWN)
    assert "Nobody knows whether the call of paid was heard: do not take it for failed." in said
    assert "posthouse saga retry app claim c1 --tenant t1" in said
    assert "posthouse saga resume app claim c1 --tenant t1" in said


def test_a_compensation_says_that_it_waits_for_an_answer() -> None:
    assert "It waits for the answer to the call of paid, and undoes that first." in sentences("compensating", OUT)


def test_a_running_saga_waits_for_the_answer_and_not_for_the_event_that_asked() -> None:
    said = sentences("running", OUT)
    assert "It waits for the answer to the call of paid.\n" in said
    assert next(take.event_type.name for take in OF.takes if take.method == "paid") not in said
