"""audit-service: every fact stands in a chain that cannot be changed unseen."""

from __future__ import annotations

import msgspec
import pytest

from melmastoon.audit import audit
from melmastoon.audit.chain import Entry, Proof, first_broken, link, prove
from melmastoon.audit.commands import anchor, append_note
from melmastoon.facts.audit import EntryAppended, MerkleAnchored
from melmastoon.facts.everything import SERVICES, facts_of
from melmastoon.tables import run, typed
from posthouse import Reject
from posthouse.contracts import EventType
from posthouse.governance.examples import examples
from posthouse.history.audit.merkle import includes, leaf
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import captured, confirmed, held

DAY = 86_400.0
OTHERS = [fact for fact in facts_of(SERVICES) if fact.subject.service != "audit"]
HASH = f"{1:064x}"


def _holds(proof: Proof, entry_hash: str) -> bool:
    reached = leaf(bytes.fromhex(entry_hash))
    return includes(reached, proof.index, proof.size, proof.path, bytes.fromhex(proof.root))


async def _chain(tenant: str = "t1") -> list[tuple[int, str]]:
    async with audit.transaction(tenant) as tx:
        sql = "SELECT position, about FROM audit_entry WHERE tenant = ? ORDER BY position"
        return typed(await run(tx, sql, tenant), tuple[int, str])


async def _broken(tenant: str = "t1") -> int | None:
    async with audit.transaction(tenant) as tx:
        return await first_broken(tx)


async def _change(sql: str, *values: str | int) -> None:
    async with audit.transaction("t1") as tx:
        await run(tx, sql, *values)


def _sample(fact: EventType[object]) -> object:
    """The smallest message that its schema takes, with a key."""
    values = examples(fact.payload.schema.text)[0]
    assert isinstance(values, dict)
    assert fact.key is not None
    return msgspec.convert({**values, fact.key: "x1"}, fact.payload.cls)


def test_every_one_of_the_82_facts_is_heard_and_no_order_is_asked_for() -> None:
    [handlers] = audit.declared.consumers.values()
    assert sorted(handlers) == [fact.name for fact in facts_of(SERVICES)]
    assert {handler.policy.order for handler in handlers.values()} == {"none"}


async def test_every_fact_stands_in_the_chain_once_and_what_is_kept_cold_or_cancels_is_announced() -> None:
    async with Harness(audit) as house:
        for fact in OTHERS:
            await house.publish(_sample(fact))
        await house.settled()
        cancels = "melmastoon.reservation.booking.cancelled.v1"  # the only audit entry of one that gives nothing back
        cold = [fact.name for fact in OTHERS if fact.terms.retention == "cold" or fact.name == cancels]
        announced = [e.data.about for e in await house.published(EntryAppended)]
        assert sorted(announced) == cold
        own = ["melmastoon.audit.entry.appended.v1"] * len(cold)
        assert sorted(about for _, about in await _chain()) == sorted([*(fact.name for fact in OTHERS), *own])
        assert [position for position, _ in await _chain()] == list(range(1, len(OTHERS) + len(cold) + 1))
        assert await _broken() is None
        await house.assert_replay_safe()


async def test_each_tenant_has_a_chain_of_its_own() -> None:
    async with Harness(audit) as house:
        await house.publish(held(), tenant="t1")
        await house.publish(held(), tenant="t2")
        await house.settled()
        for tenant in ("t1", "t2"):
            assert await _chain(tenant) == [(1, "melmastoon.reservation.booking.held.v1")]
            assert await _broken(tenant) is None


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit_entry SET digest = 'x' WHERE position = 2",
        "UPDATE audit_entry SET said_at = 'x' WHERE position = 2",
        "UPDATE audit_entry SET about = 'x' WHERE position = 2",
        "UPDATE audit_entry SET day = '2000-01-01' WHERE position = 2",
        "UPDATE audit_entry SET entry_id = 'x' WHERE position = 2",
        "UPDATE audit_entry SET hash = 'x' WHERE position = 2",
        "DELETE FROM audit_entry WHERE position = 2",
    ],
)
async def test_whoever_changes_an_entry_breaks_the_chain_there(tampering: str) -> None:
    async with Harness(audit) as house:
        for number in range(3):
            await house.publish(held(f"b{number}"))
        await house.settled()
        assert await _broken() is None
        await _change(tampering)
        assert await _broken() == 2


async def test_whoever_forges_an_entry_with_its_hash_breaks_the_one_behind_it() -> None:
    async with Harness(audit) as house:
        for number in range(3):
            await house.publish(held(f"b{number}"))
        await house.settled()
        async with audit.transaction("t1") as tx:
            sql = "SELECT hash, day FROM audit_entry WHERE position = 1"
            [(before, day)] = typed(await run(tx, sql), tuple[str, str])
        forged = Entry(entry_id="x", about="x", said_at="x", digest="x", announced=False)
        change = "UPDATE audit_entry SET entry_id = 'x', about = 'x', said_at = 'x', digest = 'x', hash = ?"
        await _change(f"{change} WHERE position = 2", link(before, 2, day, forged))
        assert await _broken() == 3


async def test_an_entry_that_is_cut_off_the_end_is_missed() -> None:
    async with Harness(audit) as house:
        for number in range(3):
            await house.publish(held(f"b{number}"))
        await house.settled()
        await _change("DELETE FROM audit_entry WHERE position = 3")
        assert await _broken() == 3


async def test_a_note_is_appended_once_and_announced() -> None:
    async with Harness(audit) as house:
        for done in (True, False):
            async with audit.transaction("t1") as tx:
                assert await append_note(tx, "note-1", "no refund: booked without one") is done
        await house.settled()
        [said] = await house.published(EntryAppended)
        assert (said.data.entry_id, said.data.about, said.data.position) == ("note-1", "note", 1)


async def test_a_day_is_anchored_with_the_first_entry_of_the_next_one() -> None:
    async with Harness(audit) as house:
        for number in range(3):
            await house.publish(held(f"b{number}"))
        await house.settled()
        assert await house.published(MerkleAnchored) == []
        for booking in ("b8", "b9"):
            house.clock.advance(DAY)
            await house.publish(held(booking))
            await house.settled()
        first, second = (e.data for e in await house.published(MerkleAnchored))
        assert (first.first_position, first.entries, first.previous_root) == (1, 3, "")
        assert (second.first_position, second.previous_root) == (4, first.root)
        assert second.day > first.day
        assert await _broken() is None


async def test_a_quiet_tenants_day_is_anchored_by_command_once_it_is_over() -> None:
    async with Harness(audit) as house:
        await house.publish(held())
        await house.settled()
        async with audit.transaction("t1") as tx:
            assert await anchor(tx) is None, "the day is not over"
        house.clock.advance(DAY)
        async with audit.transaction("t1") as tx:
            anchored = await anchor(tx)
            assert anchored is not None
            assert await anchor(tx) is None
        await house.settled()
        assert [e.data for e in await house.published(MerkleAnchored)] == [anchored]
        async with audit.transaction("t9") as tx:
            assert await anchor(tx) is None, "nothing was ever said by this tenant"


async def test_any_entry_of_a_closed_day_can_be_proven_with_its_root_alone() -> None:
    async with Harness(audit) as house:
        ids = [await house.publish(held(f"b{number}")) for number in range(5)]
        await house.settled()
        async with audit.transaction("t1") as tx:
            with pytest.raises(Reject, match="is not closed yet"):
                await prove(tx, ids[0])
            with pytest.raises(Reject, match="not in the chain"):
                await prove(tx, "x")
        house.clock.advance(DAY)
        await house.publish(confirmed())
        await house.settled()
        [anchored] = await house.published(MerkleAnchored)
        for one in ids:
            async with audit.transaction("t1") as tx:
                proof = await prove(tx, one)
            assert proof.root == anchored.data.root
            assert _holds(proof, proof.entry_hash)
            assert not _holds(proof, HASH)


async def test_its_own_facts_never_turn_the_day() -> None:
    """Otherwise each anchor would lead to the next one, for ever."""
    async with Harness(audit) as house:
        await house.publish(captured())
        await house.settled()
        house.clock.advance(DAY)
        await house.publish(EntryAppended(entry_id="x", about="note", position=9, entry_hash="00"))
        await house.settled()
        assert await house.published(MerkleAnchored) == []
        assert len(await _chain()) == 3
        await house.publish(held())
        await house.settled()
        assert [e.data.entries for e in await house.published(MerkleAnchored)] == [3], "the first fact of another does"
