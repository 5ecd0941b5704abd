"""What waits for people: whose task it is, since when, and until when."""

from __future__ import annotations

import pytest

from posthouse import Event, Saga, Service, Turn, starts, step
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.processes import SagaTask
from posthouse.testing import Harness
from tests.unit.processes.saga.claims import ClaimApproved, ClaimClosed, ClaimNoted, ClaimSaga, ClaimSigned, claims


async def tasks(by: str | None = None, tenant: str | None = None) -> list[SagaTask]:
    return [task async for task in app_of(claims).sagas.tasks(by=by, tenant=tenant)]


async def start(id: str, tenant: str = "t1") -> None:
    async with claims.transaction(tenant) as tx:
        await claims.start_saga(tx, ClaimSaga(claim_id=id))


async def test_a_step_of_people_is_their_task_while_it_may_run_and_is_not_done() -> None:
    async with Harness(claims) as h:
        began = h.clock.now()
        await start("c1")
        await h.advance(10.0)
        await h.publish(ClaimNoted(claim_id="other"))  # nothing changes for c1
        (task,) = await tasks("claims-manager")
        assert (task.row.id, task.step, task.since) == ("c1", "approved", began)
        assert task.waits_for == ("town.claims.claim.approved.v1",)
        assert task.until is not None
        assert (task.until[0], task.until[1].due_at) == ("forgotten", began + 600.0)
        assert await tasks("director") == [], "not before it is approved"
        await h.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        assert await tasks("claims-manager") == []
        (task,) = await tasks("director")
        assert (task.step, task.since) == ("signed", h.clock.now())
        await h.publish(ClaimSigned(claim_id="c1"))
        await h.settled()
        assert await tasks() == []


async def test_a_task_keeps_the_time_when_it_was_opened_whatever_comes_meanwhile() -> None:
    async with Harness(claims) as h:
        began = h.clock.now()
        await start("c1")
        await h.advance(10.0)
        await h.publish(ClaimNoted(claim_id="c1"))
        await h.advance(10.0)
        await h.publish(ClaimNoted(claim_id="c1"))
        await h.settled()
        assert {(task.by, task.step): task.since for task in await tasks()} == {
            ("claims-manager", "approved"): began,
            ("claims-desk", None): began + 10.0,
        }


async def test_what_rests_is_a_task_of_the_operator_until_it_goes_on() -> None:
    async with Harness(claims) as h:
        await start("c1")
        await h.publish(ClaimNoted(claim_id="c1"))
        await h.settled()
        (task,) = await tasks("claims-desk")
        assert (task.row.status, task.row.reason, task.step, task.waits_for) == (
            "partial",
            "a part is missing",
            None,
            (),
        )
        await app_of(claims).sagas.cancel("claim", "c1", "enough", tenant="t1")
        assert await tasks() == []


async def test_a_saga_that_ended_has_no_tasks_and_tenants_are_kept_apart() -> None:
    async with Harness(claims) as h:
        await start("c1", "t1")
        await start("c2", "t2")
        assert [task.row.id for task in await tasks(tenant="t2")] == ["c2"]
        await h.publish(ClaimClosed(claim_id="c1"), tenant="t1")
        await h.settled()
        assert [task.row.id for task in await tasks()] == ["c2"]


def test_a_role_without_a_name_is_refused() -> None:
    class Nobody(Saga):
        claim_id: str

        @starts
        def begun(self, turn: Turn) -> None: ...

        @step(ClaimApproved, by=" ")
        def approved(self, event: Event[ClaimApproved], turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        Service("other", namespace="town").saga("nobody", correlate="claim_id", operator="")(Nobody)
    assert "Nobody: approved: by names the role of those who do it, as in by='claims-manager'" in str(caught.value)
    assert "Nobody: operator names the role of those who decide when it rests" in str(caught.value)
