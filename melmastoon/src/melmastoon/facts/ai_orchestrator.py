"""ai-orchestrator-service: what models found, wrote or refused, and what people decided about it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from melmastoon.facts.house import service
from posthouse import Payload

ai_orchestrator = service("ai_orchestrator", owner="intelligence")

Purpose = Literal["guest_reply", "review_summary", "listing_text", "translation"]
LocalPurpose = Literal["id_scan", "speech_to_text", "occupancy_forecast"]
AnomalyKind = Literal["duplicate_booking", "repeated_decline", "lock_vendor_failing"]


class Provenance(Payload):
    """Who decided: without it no decision can be reviewed, nor those of a model that turned out wrong be found."""

    model: str
    model_version: str
    confidence: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    source: str
    """What it was made from: a fact's id, or the hash of a prompt."""


@ai_orchestrator.event(
    "anomaly.detected.v1", key="anomaly_id", retention="cold", provenance="provenance", idempotency="required"
)
class AnomalyDetected(Payload):
    """Something looks wrong, and a person should look at it. Nothing is done about it by itself."""

    anomaly_id: str
    kind: AnomalyKind
    booking_id: str
    other_booking_id: str
    provenance: Provenance


@ai_orchestrator.event(
    "hitl.decided.v1", key="anomaly_id", retention="cold", provenance="provenance", idempotency="required"
)
class HumanDecided(Payload):
    """A person looked, and said whether the model was right."""

    anomaly_id: str
    decision: Literal["confirmed", "dismissed"]
    staff_id: str
    note: str
    provenance: Provenance
    """Of what was decided about."""


@ai_orchestrator.event(
    "completion.completed.v1", key="completion_id", retention="cold", provenance="provenance", idempotency="required"
)
class CompletionCompleted(Payload):
    """A model wrote a text; it is fetched by its hash."""

    completion_id: str
    purpose: Purpose
    text_hash: str
    provenance: Provenance


@ai_orchestrator.event(
    "completion.refused.v1", key="completion_id", retention="cold", provenance="provenance", idempotency="required"
)
class CompletionRefused(Payload):
    """Moderation stopped a text, before the model was asked or after it had answered."""

    completion_id: str
    purpose: Purpose
    stage: Literal["before", "after"]
    category: Literal["personal_data", "payment_details", "abuse"]
    provenance: Provenance


@ai_orchestrator.event(
    "inference.local_completed.v1",
    key="inference_id",
    retention="cold",
    provenance="provenance",
    idempotency="required",
)
class LocalInferenceCompleted(Payload):
    """A model on a desktop found something, perhaps while the line was down."""

    inference_id: str
    device_id: str
    purpose: LocalPurpose
    result_hash: str
    provenance: Provenance
