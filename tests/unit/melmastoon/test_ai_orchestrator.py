"""ai-orchestrator-service: what models found, wrote or refused, and what people decided about it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date
from typing import Literal

import pytest

from melmastoon.ai_orchestrator import ai_orchestrator
from melmastoon.ai_orchestrator.commands import complete, decide, record_inference
from melmastoon.ai_orchestrator.moderation import objection
from melmastoon.facts.ai_orchestrator import (
    AnomalyDetected,
    CompletionCompleted,
    CompletionRefused,
    HumanDecided,
    LocalInferenceCompleted,
    Provenance,
)
from melmastoon.facts.lock_integration import VendorErred
from melmastoon.facts.payment import IntentFailed
from melmastoon.vendors.weather import Scripted, VendorDown
from melmastoon.vendors.world import World
from melmastoon.vendors.writing import Draft, SimulatedWriter
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import ARRIVAL, cancelled, confirmed, guest

LOCAL = Provenance(model="scan.onnx", model_version="5", confidence=0.75, source="camera")


class Scribe:
    """A model that writes what it is told to."""

    def __init__(self, *texts: str) -> None:
        self.asked: list[str] = []
        self._texts: Sequence[str] = texts

    async def write(self, request_id: str, prompt: str) -> Draft:
        self.asked.append(request_id)
        return Draft(text=self._texts[len(self.asked) - 1], model="scribe", model_version="1", confidence=0.5)


def _failed(booking_id: str, number: int) -> IntentFailed:
    return IntentFailed(
        booking_id=booking_id,
        intent_id=f"i{number}",
        purpose="stay",
        reference="x",
        amount_cents=1,
        currency="USD",
        reason="declined",
    )


def _lock_error(booking_id: str, property_id: str) -> VendorErred:
    return VendorErred(
        booking_id=booking_id, property_id=property_id, vendor="salto", operation="issue", reason="timeout"
    )


async def test_the_same_guest_on_the_same_nights_is_an_anomaly_with_provenance() -> None:
    async with Harness(ai_orchestrator) as house:
        await house.publish(confirmed("b1", who=guest(email="Zala@example.org ")))
        await house.settled()
        second = await house.publish(confirmed("b2", who=guest(email="zala@EXAMPLE.org")))
        await house.settled()
        [found] = await house.published(AnomalyDetected)
        assert (found.data.kind, found.data.booking_id, found.data.other_booking_id) == (
            "duplicate_booking",
            "b2",
            "b1",
        )
        assert found.data.provenance == Provenance(
            model="rule:duplicate_booking", model_version="1", confidence=0.9, source=second
        )
        await house.assert_replay_safe()


async def test_other_nights_another_guest_another_tenant_or_a_cancelled_stay_are_none() -> None:
    async with Harness(ai_orchestrator) as house:
        await house.publish(confirmed("b1"))
        await house.publish(confirmed("b2", check_out=date(2027, 2, 5)))
        await house.publish(confirmed("b3", check_in=date(2027, 1, 31)))
        await house.publish(confirmed("b4", who=guest(email="other@example.org")))
        await house.publish(confirmed("b5"), tenant="t2")
        await house.settled()
        await house.publish(cancelled("b1"))
        await house.settled()
        await house.publish(confirmed("b6"))
        await house.settled()
        assert await house.published(AnomalyDetected) == []
    assert date(2027, 2, 1) == ARRIVAL


async def test_the_third_decline_of_one_booking_is_an_anomaly_and_the_fourth_is_not_another() -> None:
    async with Harness(ai_orchestrator) as house:
        for number in range(4):
            await house.publish(_failed("b1", number))
        await house.publish(_failed("b2", 9))
        await house.settled()
        [found] = await house.published(AnomalyDetected)
        assert (found.data.kind, found.data.booking_id) == ("repeated_decline", "b1")


async def test_the_third_error_of_the_locks_of_one_house_is_an_anomaly() -> None:
    async with Harness(ai_orchestrator) as house:
        for number in range(3):
            await house.publish(_lock_error(f"b{number}", "p1"))
            await house.settled()
        await house.publish(_lock_error("b9", "p2"))
        await house.settled()
        [found] = await house.published(AnomalyDetected)
        assert (found.data.kind, found.data.booking_id) == ("lock_vendor_failing", "b2")


async def test_a_person_decides_once_about_an_anomaly() -> None:
    async with Harness(ai_orchestrator) as house:
        await house.publish(confirmed("b1"))
        await house.publish(confirmed("b2"))
        await house.settled()
        [found] = await house.published(AnomalyDetected)
        decisions: list[tuple[Literal["confirmed", "dismissed"], bool]] = [("confirmed", True), ("dismissed", False)]
        for decision, counts in decisions:
            async with ai_orchestrator.transaction("t1") as tx:
                done = await decide(tx, found.data.anomaly_id, decision, staff_id="m1", note="called the guest")
                assert done is counts
        async with ai_orchestrator.transaction("t1") as tx:
            with pytest.raises(Reject, match="no anomaly x"):
                await decide(tx, "x", "confirmed", staff_id="m1")
        await house.settled()
        [decided] = await house.published(HumanDecided)
        assert (decided.data.decision, decided.data.staff_id) == ("confirmed", "m1")
        assert decided.data.provenance == found.data.provenance


async def test_a_text_is_written_once_and_said_by_its_hash() -> None:
    scribe = Scribe("Come at noon.", "never")
    async with Harness(ai_orchestrator) as house:
        for _ in range(2):
            text = await complete("t1", "c1", "When may I come?", purpose="guest_reply", model=scribe)
            assert text == "Come at noon."
        await house.settled()
        [said] = await house.published(CompletionCompleted)
        assert said.data.text_hash == hashlib.sha256(b"Come at noon.").hexdigest()
        assert said.data.provenance == Provenance(
            model="scribe",
            model_version="1",
            confidence=0.5,
            source=f"sha256-{hashlib.sha256(b'When may I come?').hexdigest()}",
        )
    assert scribe.asked == ["t1:c1"]


async def test_a_prompt_with_a_card_number_never_reaches_the_model() -> None:
    scribe = Scribe("never")
    async with Harness(ai_orchestrator) as house:
        for _ in range(2):
            prompt = "My card is 4111 1111 1111 1111"
            assert await complete("t1", "c1", prompt, purpose="guest_reply", model=scribe) is None
        await house.settled()
        [refused] = await house.published(CompletionRefused)
        assert (refused.data.stage, refused.data.category) == ("before", "payment_details")
        assert refused.data.provenance.model == "moderation"
    assert scribe.asked == []


async def test_a_text_that_a_model_should_not_have_written_is_refused_afterwards() -> None:
    async with Harness(ai_orchestrator) as house:
        text = await complete("t1", "c1", "Reply!", purpose="guest_reply", model=Scribe("Write to ann@example.org"))
        assert text is None
        await house.settled()
        [refused] = await house.published(CompletionRefused)
        assert (refused.data.stage, refused.data.category) == ("after", "personal_data")
        assert refused.data.provenance.model == "scribe"
        assert await house.published(CompletionCompleted) == []


async def test_a_model_that_fails_leaves_nothing_behind_and_may_be_asked_again() -> None:
    model = SimulatedWriter(World(weather=Scripted(moods={"write": ["error"]})))
    async with Harness(ai_orchestrator) as house:
        with pytest.raises(VendorDown):
            await complete("t1", "c1", "Hello", purpose="translation", model=model)
        text = await complete("t1", "c1", "Hello", purpose="translation", model=model)
        assert text == "Thank you for your message. Hello"
        await house.settled()
        assert len(await house.published(CompletionCompleted)) == 1


async def test_an_inference_of_a_desktop_is_recorded_once() -> None:
    async with Harness(ai_orchestrator) as house:
        for done in (True, False):
            async with ai_orchestrator.transaction("t1") as tx:
                recorded = await record_inference(
                    tx, "n1", "passport", device_id="d1", purpose="id_scan", provenance=LOCAL
                )
                assert recorded is done
        await house.settled()
        [said] = await house.published(LocalInferenceCompleted)
        assert (said.data.device_id, said.data.provenance) == ("d1", LOCAL)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("4111-1111-1111-1111", "payment_details"),
        ("4111 1111 1111 1112", None),
        ("call +93 700 000 001", "personal_data"),
        ("zala@example.org", "personal_data"),
        ("what an Idiot", "abuse"),
        ("idiotic", None),
        ("room 101, 3 nights", None),
    ],
)
def test_moderation_stops_what_must_not_pass(text: str, category: str | None) -> None:
    assert objection(text) == category
