"""Late in the evening: guests who have left ask to be forgotten, and somebody who reached the log tries to be paid twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from melmastoon.demo.cast import TENANTS
from melmastoon.demo.stage import Stage
from melmastoon.facts.iam import iam
from melmastoon.facts.payment import payment
from melmastoon.facts.reservation import reservation
from melmastoon.reservation.status import OVER
from melmastoon.tables import run, typed
from posthouse import PosthouseError, app_of
from posthouse.clock import new_id
from posthouse.erasure import erase
from posthouse.seam.frames import frame_of
from posthouse.store import OutboxRow

LEFT = f"""SELECT guest_id FROM bookings WHERE tenant = ? GROUP BY guest_id
    HAVING SUM(CASE WHEN status IN ({", ".join(f"'{status}'" for status in sorted(OVER))}) THEN 0 ELSE 1 END) = 0
    ORDER BY guest_id LIMIT 1"""
"""Guests whose stays are all over."""

CAPTURED = b'"eventType":"melmastoon.payment.intent.captured"'
PAGE = 500
TRIES = 20
"""How often the forger tries while the log does not answer."""


async def late(stage: Stage) -> None:
    """One guest of each hotelier, as soon as somebody has left; and one forgery."""
    asking = [(tenant, left[0]) for tenant in TENANTS if tenant not in stage.erased and (left := await _left(tenant))]
    await asyncio.gather(*(_forget(*who) for who in asking))
    stage.erased.update(asking)
    if not stage.forged:
        stage.forged = await _forge()


async def _left(tenant: str) -> Sequence[str]:
    async with reservation.transaction(tenant) as tx:
        return [guest_id for (guest_id,) in typed(await run(tx, LEFT, tx.tenant), tuple[str])]


async def _forget(tenant: str, guest_id: str) -> None:
    """What `posthouse subject erase` does."""
    done = await erase(iam, tenant, guest_id, why="asked for it at the desk", by="privacy")
    if done.silent or any(
        place.opened or place.plain for place in done.places
    ):  # a broker without a log proves nothing
        raise PosthouseError(f"guest {guest_id} of {tenant} is not forgotten by {', '.join(done.silent) or 'all'}")


async def _forge() -> str:
    """Take a true fact about money out of the log, write another amount into it, and say it again; the id of the forgery. Empty
    as long as there is none."""
    true = await _some_capture()
    if true is None:
        return ""
    forged = new_id()
    frame = frame_of(true)
    body = frame.body.replace(true.event_id.encode(), forged.encode()).replace(b'"amount_cents":', b'"amount_cents":9')
    frame = msgspec.structs.replace(frame, id=forged, body=body)
    for _ in range(TRIES):
        [verdict] = await app_of(payment).broker.publish([frame])
        if verdict.accepted:
            return forged
    raise PosthouseError(f"the log does not take the forgery: {verdict.reason}")


async def _some_capture() -> OutboxRow | None:
    after, outbox = 0, app_of(payment).store.outbox
    while rows := await outbox.kept(after, PAGE):
        if found := next((row for row in rows if CAPTURED in row.body), None):
            return found
        after = max(row.id for row in rows)
    return None
