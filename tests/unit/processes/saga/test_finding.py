"""Sagas are found by their fields and by who started them."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import pytest

from posthouse import Saga, Service, Turn, starts
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.store.sagas import SagaFilter, SagaRef
from posthouse.testing import Harness
from tests.unit.processes.saga.claims import ClaimApproved, ClaimSaga, claims

CASE = UUID("0192f0c1-2f6a-7d36-a5a0-d5f6c1f0a001")


async def test_a_saga_is_found_by_the_fields_that_it_is_indexed_by_as_they_are_now() -> None:
    async with Harness(claims) as h:
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1", policy_id="p1", case=CASE, due=date(2026, 3, 1)))
            await claims.start_saga(tx, ClaimSaga(claim_id="c2", policy_id="p1"))
        await h.publish(ClaimApproved(claim_id="c2"), tenant="t1")
        await h.settled()
        asked = ({"policy_id": "p1"}, {"number": 0}, {"number": 1}, {"case": CASE}, {"due": date(2026, 3, 1)})
        found = [[row.id async for row in app_of(claims).sagas.find(SagaFilter(where=where))] for where in asked]
    assert found == [["c1", "c2"], ["c1"], ["c2"], ["c1"], ["c1"]]


async def test_a_saga_that_is_started_in_a_turn_is_a_child_of_that_saga() -> None:
    async with Harness(claims):
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1", inspected=True))
            await claims.start_saga(tx, ClaimSaga(claim_id="c2"))
        rows = {row.id: row async for row in app_of(claims).sagas.find()}
    assert rows["i-c1"].parent == SagaRef("claim", "c1", 1)
    assert rows["i-c1"].correlation == rows["c1"].correlation
    assert rows["c1"].parent is None
    assert rows["c2"].parent is None, "the turn before it is over"


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("policy_id", "it is a list, each a text: write index=['policy_id']"),
        (("polcy_id",), "index names 'polcy_id', which is no field of it. Did you mean 'policy_id'?"),
        (("claim_id",), "index names 'claim_id', which is its id: it is found by that already"),
        (("share",), "index names 'share', which is float: text, whole numbers, UUIDs and dates are indexed"),
        (("notes",), "index names 'notes', which is tuple[str, ...]: text, whole numbers"),
        (("either",), "index names 'either', which is str | int: text, whole numbers"),
        (("policy_id", "policy_id"), "index names a field twice: policy_id, policy_id"),
    ],
)
def test_what_cannot_be_indexed_is_refused_where_it_is_declared(index: tuple[str, ...], words: str) -> None:
    service = Service("other", namespace="town")

    class OtherSaga(Saga):
        claim_id: str
        policy_id: str = ""
        share: float = 0.0
        notes: tuple[str, ...] = ()
        either: str | int = ""

        @starts
        def begun(self, turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        service.saga("claim", correlate="claim_id", index=index)(OtherSaga)
    assert words in str(caught.value)


async def test_fields_are_asked_for_as_text_too_and_what_cannot_be_is_told() -> None:
    async with Harness(claims):
        sagas = app_of(claims).sagas
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1", number=7, case=CASE))
        for where in ({"number": "7"}, {"case": str(CASE)}, {"case": str(CASE).upper()}):
            assert [row.id async for row in sagas.find(SagaFilter(where=where))] == ["c1"]
        for wanted, words in (
            (SagaFilter(where={"polcy_id": "p"}), "no saga is indexed by 'polcy_id'. Did you mean 'policy_id'?"),
            (SagaFilter(saga="inspection", where={"a": "p"}), "inspection is not indexed by 'a'. None is indexed"),
            (SagaFilter(where={"number": "seven"}), "number=seven finds no claim: Expected `int`"),
        ):
            with pytest.raises(ConfigurationError) as caught:
                [row async for row in sagas.find(wanted)]
            assert words in str(caught.value)


async def test_an_index_that_a_release_added_is_filled_by_a_turn_or_by_hand() -> None:
    async with Harness(claims) as h:
        sagas = app_of(claims).sagas
        async with claims.transaction("t1") as tx:
            for id in ("c1", "c2", "c3"):
                await claims.start_saga(tx, ClaimSaga(claim_id=id, policy_id="p1"))
        await sagas.cancel("claim", "c3", "a mistake", tenant="t1")
        async with app_of(claims).store.begin() as inner:
            await inner.execute("DELETE FROM posthouse_saga_index")
            await inner.execute("UPDATE posthouse_saga SET progress = json_remove(progress, '$.index', '$.tasks')")

        async def found() -> list[str]:
            return [row.id async for row in sagas.find(SagaFilter(where={"policy_id": "p1"}))]

        assert await found() == []
        await h.publish(ClaimApproved(claim_id="c2"))
        await h.settled()
        assert await found() == ["c2"]
        assert await sagas.fill_index() == 2
        assert await found() == ["c1", "c2", "c3"]
        assert await sagas.fill_index() == 0
        assert [task.row.id async for task in sagas.tasks(by="claims-manager")] == ["c1"]
        last = (await sagas.show("claim", "c3", tenant="t1")).history[-1]
        assert (last.input.kind, last.input.type, last.status) == ("operator", "index", "cancelled")
