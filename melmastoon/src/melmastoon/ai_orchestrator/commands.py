"""What ai-orchestrator-service can be asked to do."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from melmastoon.ai_orchestrator.moderation import Category, objection
from melmastoon.facts.ai_orchestrator import (
    CompletionCompleted,
    CompletionRefused,
    HumanDecided,
    LocalInferenceCompleted,
    LocalPurpose,
    Provenance,
    Purpose,
    ai_orchestrator,
)
from melmastoon.tables import run, typed
from melmastoon.vendors.writing import Writer
from posthouse import Reject, Tx

DECIDE = """UPDATE ai_anomaly SET decision = ? WHERE tenant = ? AND anomaly_id = ? AND decision = ''
    RETURNING provenance"""
ANOMALY = "SELECT 1 FROM ai_anomaly WHERE tenant = ? AND anomaly_id = ?"
KNOWN = "SELECT outcome, text FROM ai_completion WHERE tenant = ? AND completion_id = ?"
NEW_COMPLETION = """INSERT INTO ai_completion (tenant, completion_id, outcome, text) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
NEW_INFERENCE = """INSERT INTO ai_inference (tenant, inference_id, device_id, result) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
MODERATION = "moderation"
"""Who decides when no model was asked."""


async def decide(
    tx: Tx, anomaly_id: str, decision: Literal["confirmed", "dismissed"], *, staff_id: str, note: str = ""
) -> bool:
    """A person says whether the model was right. The first decision stands."""
    decided = typed(await run(tx, DECIDE, decision, tx.tenant, anomaly_id), tuple[str])
    if not decided and not await run(tx, ANOMALY, tx.tenant, anomaly_id):
        raise Reject(f"there is no anomaly {anomaly_id} in this tenant")
    for (provenance,) in decided:
        fact = HumanDecided(
            anomaly_id=anomaly_id,
            decision=decision,
            staff_id=staff_id,
            note=note,
            provenance=msgspec.json.decode(provenance, type=Provenance),
        )
        tx.publish(fact, idempotency_key=f"ai:decide:{anomaly_id}")
    return bool(decided)


async def complete(tenant: str, completion_id: str, prompt: str, *, purpose: Purpose, model: Writer) -> str | None:
    """A text for a prompt; None when moderation stopped it. The model is asked while no transaction is open. The same id
    again has the same outcome, also when the model was asked twice."""
    async with ai_orchestrator.transaction(tenant) as tx:
        if known := await _known(tx, completion_id):
            return known[1] if known[0] == "completed" else None
    source = f"sha256-{_hash(prompt)}"
    if (category := objection(prompt)) is not None:
        provenance = Provenance(model=MODERATION, model_version="1", confidence=1.0, source=source)
        await _refuse(tenant, completion_id, purpose, "before", category, provenance)
        return None
    draft = await model.write(f"{tenant}:{completion_id}", prompt)
    provenance = Provenance(
        model=draft.model, model_version=draft.model_version, confidence=draft.confidence, source=source
    )
    if (category := objection(draft.text)) is not None:
        await _refuse(tenant, completion_id, purpose, "after", category, provenance)
        return None
    async with ai_orchestrator.transaction(tenant) as tx:
        if await _is_new(tx, completion_id, "completed", draft.text):
            fact = CompletionCompleted(
                completion_id=completion_id, purpose=purpose, text_hash=_hash(draft.text), provenance=provenance
            )
            tx.publish(fact, idempotency_key=f"ai:complete:{completion_id}")
            return draft.text
        known = await _known(tx, completion_id)  # somebody else was quicker with the same id
        return known[1] if known and known[0] == "completed" else None


async def record_inference(
    tx: Tx, inference_id: str, result: str, *, device_id: str, purpose: LocalPurpose, provenance: Provenance
) -> bool:
    """What a model on a desktop found, perhaps hours ago. Sending it again changes nothing."""
    if not (await run(tx, NEW_INFERENCE, tx.tenant, inference_id, device_id, result)).rowcount:
        return False
    fact = LocalInferenceCompleted(
        inference_id=inference_id,
        device_id=device_id,
        purpose=purpose,
        result_hash=_hash(result),
        provenance=provenance,
    )
    tx.publish(fact, idempotency_key=f"ai:inference:{inference_id}")
    return True


async def _refuse(
    tenant: str,
    completion_id: str,
    purpose: Purpose,
    stage: Literal["before", "after"],
    category: Category,
    provenance: Provenance,
) -> None:
    async with ai_orchestrator.transaction(tenant) as tx:
        if await _is_new(tx, completion_id, "refused", ""):
            fact = CompletionRefused(
                completion_id=completion_id, purpose=purpose, stage=stage, category=category, provenance=provenance
            )
            tx.publish(fact, idempotency_key=f"ai:refuse:{completion_id}")


async def _known(tx: Tx, completion_id: str) -> tuple[str, str] | None:
    found = typed(await run(tx, KNOWN, tx.tenant, completion_id), tuple[str, str])
    return found[0] if found else None


async def _is_new(tx: Tx, completion_id: str, outcome: str, text: str) -> bool:
    return (await run(tx, NEW_COMPLETION, tx.tenant, completion_id, outcome, text)).rowcount == 1


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
