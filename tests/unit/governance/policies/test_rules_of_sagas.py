"""The rules know what a turn is: a transaction that is open, whose facts are said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.governance.policies import Settings, examine
from tests.unit.governance.policies.conftest import Find, Gather

EVENTS = """
from posthouse import Saga, Turn, deadline, on, starts, step, undo, partial_retry

@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str

@orders.event("refund.requested.v1", key="order_id")
class RefundRequested(Payload):
    order_id: str
    amount_cents: int

@billing.event("refund.granted.v1", key="order_id")
class RefundGranted(Payload):
    order_id: str

@billing.on(RefundRequested)
async def grant(event: Event[RefundRequested], tx: Tx) -> RefundGranted:
    return RefundGranted(order_id=event.data.order_id)
"""

SAGA = '''
@orders.saga("returning", correlate="order_id")
class Returning(Saga):
    """A thing comes back."""

    order_id: str

    @starts
    async def ask(self, turn: Turn) -> None:
        {body}

    @undo(ask)
    async def call_off(self, turn: Turn) -> None:
        {undoing}

    @deadline(30.0)
    async def expired(self, turn: Turn) -> None:
        {late}

    @step(RefundGranted)
    async def granted(self, event: Event[RefundGranted], turn: Turn) -> None:
        {step}

    async def helped(self, turn: Turn) -> None:
        {helper}
'''


def saga(**bodies: str) -> str:
    """A saga whose methods say this; `...` where nothing is said."""
    every = dict.fromkeys(("body", "undoing", "late", "step", "helper"), "...") | bodies
    return EVENTS + SAGA.format(**every)


PUBLISH = "turn.publish(RefundRequested(order_id=self.order_id, amount_cents=1))"
METHODS = ("body", "undoing", "late", "step", "helper")


def test_a_saga_that_asks_by_a_fact_and_is_answered_by_one_is_no_call(find: Find) -> None:
    assert not find("event-as-rpc", saga(body=PUBLISH))


def test_a_plain_handler_that_waits_for_the_answer_is_still_one(find: Find) -> None:
    heard = "\n@orders.on(RefundGranted)\nasync def heard(event: Event[RefundGranted], tx: Tx) -> None:\n    ...\n"
    assert find("event-as-rpc", EVENTS + heard)
    assert not find("event-as-rpc", saga(body=PUBLISH) + heard), "the saga asked; beside it anybody may write it down"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("said", [PUBLISH, PUBLISH.replace("turn.", "turn.tx.")])
def test_what_a_turn_says_is_said_once_and_needs_no_key(find: Find, method: str, said: str) -> None:
    assert not find("money-without-idempotency-key", saga(**{method: said}))
    assert not find("missing-idempotency-key", saga(**{method: "turn.publish(OrderPlaced(order_id='1'))"}))


@pytest.mark.parametrize("method", METHODS)
def test_a_network_call_inside_a_turn_is_found(find: Find, method: str) -> None:
    [found] = find("network-call-in-handler", saga(**{method: "import httpx; httpx.post('https://bank')"}))
    assert "calls httpx.post while its transaction is open" in found.sentence
    assert "shop.Returning." in found.where
    assert "@step(…, calling=…)" in found.fix


def test_a_network_call_in_a_method_that_was_inherited_is_found(find: Find) -> None:
    base = (
        "class Asking(Saga):\n    async def helped(self, turn: Turn) -> None:\n        import httpx; httpx.get('x')\n"
    )
    text = EVENTS + base + SAGA.format(**dict.fromkeys(METHODS, "...")).replace("(Saga)", "(Asking)")
    [found] = find("network-call-in-handler", text)
    assert "shop.Asking.helped" in found.sentence


def test_a_network_call_that_a_step_is_given_is_fine(find: Find) -> None:
    call = (
        "\ndef pay(event: Event[RefundGranted]) -> str:\n    import httpx\n    return httpx.post('https://bank').text\n"
    )
    assert not find("network-call-in-handler", saga() + call)


@pytest.mark.parametrize("statement", ["turn.execute('DELETE FROM x')", "turn.tx.execute('DELETE FROM x')"])
def test_a_statement_of_a_turn_that_nobody_awaits_is_found(find: Find, statement: str) -> None:
    assert find("call-not-awaited", saga(step=statement))
    assert not find("call-not-awaited", saga(step=f"await {statement}"))


@pytest.mark.parametrize(("mark", "weight"), [('Annotated[str, Personal("contact")]', "error"), ("str", "warning")])
def test_no_saga_is_known_or_found_by_what_is_personal(find: Find, mark: str, weight: str) -> None:
    text = (
        saga()
        .replace('correlate="order_id"', 'correlate="email"')
        .replace("    order_id: str\n\n    @", f"    email: {mark}\n\n    @")
    )
    text = text.replace(
        'key="order_id")\nclass RefundGranted(Payload):\n',
        f'key="order_id")\nclass RefundGranted(Payload):\n    email: {mark}\n',
    )
    text = text.replace("RefundGranted(order_id=event.data.order_id)", "RefundGranted(email='a@b', order_id='1')")
    found = find("personal-data-in-key", text)
    assert [one.severity for one in found] == [weight, weight]
    assert {one.sentence.partition(" 'email', ")[0] for one in found} == {
        "shop.Returning is known by", "shop.Returning is found by shop.billing.refund.granted.v1's",
    }  # fmt: skip
    assert not find("personal-data-in-key", saga())


def test_the_saga_of_the_documentation_passes(gather: Gather) -> None:
    text = (Path(__file__).parents[4] / "docs" / "examples" / "sagas.py").read_text().replace("from __future__", "#")
    found = examine(gather(text, Settings())).findings
    assert not [f.sentence for f in found if f.rule in ("event-as-rpc", "money-without-idempotency-key")]
