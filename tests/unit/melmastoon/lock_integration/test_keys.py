"""lock-integration-service: who may open which door; and no key outlives its stay."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from melmastoon.facts.lock_integration import (
    DevicePaired,
    KeyIssued,
    KeyRevoked,
    KeySuspended,
    KeyUpdated,
    VendorErred,
)
from melmastoon.lock_integration import lock_integration
from melmastoon.lock_integration.desk import issue_manually, reinstate, revoke_manually, suspend
from melmastoon.lock_integration.devices import pair_device
from melmastoon.lock_integration.queue import by_hand
from melmastoon.vendors.lock import Credential, SimulatedEncoder, SimulatedLockVendor
from melmastoon.vendors.weather import Mood, Scripted
from melmastoon.vendors.world import World, pretending
from posthouse import Reject, RetryLater, RetryNow
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import (
    cancelled,
    check_in_started,
    check_out_started,
    confirmed,
    dates_changed,
    day,
    no_show,
    reallocated,
    rows,
)

DOWN: list[Mood] = ["error"] * 99


@pytest.fixture
def outside() -> Iterator[World]:
    with pretending(World()) as world:
        yield world


def errors(count: int, *, after: int = 0) -> Sequence[Mood]:
    fine: list[Mood] = ["fine"] * after
    return [*fine, *DOWN * (count // len(DOWN)), *DOWN[: count % len(DOWN)]]


def weather(moods: dict[str, Sequence[Mood]]) -> World:
    return World(weather=Scripted(moods=moods))


async def queue() -> list[tuple[str, str]]:
    async with lock_integration.transaction("t1") as tx:
        return [(one.operation, one.reason) for one in await by_hand(tx)]


async def patient(h: Harness) -> None:
    for _ in range(12):
        await h.advance(300)


async def test_a_guest_who_has_paid_gets_a_key_for_the_room_and_the_window(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        (key,) = await h.published(KeyIssued)
        assert (key.data.credential_id, key.data.room_id, key.data.vendor) == ("key-b1", "r1", "ttlock")
        assert (key.data.check_in, key.data.check_out, key.data.manual) == (day(1), day(3), False)
        assert outside.ledger.opening("t1") == {"b1": "r1"}
        await h.assert_replay_safe()


async def test_a_guest_who_pays_on_arrival_gets_the_key_at_check_in(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed(cash=True))
        await h.settled()
        assert outside.ledger.opening("t1") == {}
        await h.publish(check_in_started())
        await h.settled()
        assert len(await h.published(KeyIssued)) == 1
        assert outside.ledger.opening("t1") == {"b1": "r1"}


async def test_check_in_is_told_of_a_key_that_was_issued_before(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.publish(check_in_started())
        await h.publish(check_in_started(attempt=2, missing=("folio",)))
        await h.settled()
        (told,) = await h.published(KeyUpdated)
        assert (told.data.credential_id, told.data.change_id) == ("key-b1", "")


@pytest.mark.parametrize("mood", ["slow", "error", "timeout", "lost", "late", "twice"])
async def test_a_fault_that_passes_is_no_trouble(mood: Mood) -> None:
    with pretending(weather({"put": [mood], "revoke": [mood]})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            assert outside.ledger.opening("t1") == {"b1": "r1"}
            await h.publish(check_out_started(asks="key"))
            await h.settled()
            assert outside.ledger.opening("t1") == {}
            assert (len(await h.published(KeyIssued)), len(await h.published(KeyRevoked))) == (1, 1)
            assert await h.published(VendorErred) == []


async def test_after_a_timeout_the_vendor_is_asked_what_became_of_it_before_anything_is_tried_again() -> None:
    with pretending(weather({"put": ["lost"], "revoke": ["lost"]})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.publish(check_out_started(asks="key"))
            await h.settled()
            asked = outside.ledger.read("SELECT operation, attempts FROM calls ORDER BY operation")
            assert asked == [("find", 2), ("put", 1), ("revoke", 1)]


async def test_a_vendor_that_fails_for_good_sends_the_key_to_the_manual_queue() -> None:
    with pretending(weather({"put": DOWN})):
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            (trouble,) = await h.published(VendorErred)
            assert (trouble.data.operation, trouble.data.vendor, trouble.data.reason) == (
                "issue",
                "ttlock",
                "vendor_error",
            )
            assert await queue() == [("issue", "vendor_error")]
            assert await h.held(lock_integration) == []


async def test_the_desk_cuts_a_key_by_hand_and_check_out_ends_it_without_the_vendor() -> None:
    with pretending(weather({"put": DOWN, "revoke": DOWN})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            await issue_manually("t1", "b1")
            await issue_manually("t1", "b1")
            await h.settled()
            (key,) = await h.published(KeyIssued)
            assert key.data.manual
            assert await queue() == []
            assert outside.ledger.opening("t1") == {"b1": "r1"}
            await h.publish(check_in_started())
            await h.publish(check_out_started(asks="key"))
            await h.settled()
            assert outside.ledger.opening("t1") == {}
            assert [e.data.reason for e in await h.published(KeyRevoked)] == ["checked_out"]


async def test_check_in_asks_again_for_a_key_that_the_vendor_failed_to_issue() -> None:
    with pretending(weather({"put": ["error"] * 9})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.publish(check_in_started())
            await h.settled()
            assert len(await h.published(VendorErred)) == 2
            await h.publish(check_in_started(attempt=2, missing=("key",)))
            await h.settled()
            assert len(await h.published(KeyIssued)) == 1
            assert await queue() == []
            assert outside.ledger.opening("t1") == {"b1": "r1"}


@pytest.mark.parametrize(
    ("fact", "reason"),
    [(check_out_started(asks="key"), "checked_out"), (cancelled(), "cancelled"), (no_show(), "no_show")],
    ids=["check-out", "cancellation", "no-show"],
)
async def test_a_key_ends_with_its_stay(outside: World, fact: object, reason: str) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.publish(fact)
        await h.publish(fact)
        await h.settled()
        answers = 2 if reason == "checked_out" else 1  # a check-out waits, and is answered whenever it asks
        said = [(e.data.credential_id, e.data.reason) for e in await h.published(KeyRevoked)]
        assert said == [("key-b1", reason)] * answers
        assert outside.ledger.opening("t1") == {}
        await h.assert_replay_safe()


async def test_check_out_is_answered_even_when_there_never_was_a_key(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed(cash=True))
        await h.publish(check_out_started(asks="key"))
        await h.publish(check_out_started("b2", asks="key"))
        await h.publish(cancelled("b3"))
        await h.settled()
        revoked = [(e.data.booking_id, e.data.credential_id) for e in await h.published(KeyRevoked)]
        assert sorted(revoked) == [("b1", ""), ("b2", "")]


async def test_check_out_is_answered_when_the_key_was_lost_and_revoked_before(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        await revoke_manually("t1", "b1")
        await h.publish(check_out_started(asks="key"))
        await h.settled()
        said = [(e.data.credential_id, e.data.reason) for e in await h.published(KeyRevoked)]
        assert said == [("key-b1", "security"), ("key-b1", "checked_out")]


async def test_a_key_that_the_vendor_issued_without_saying_so_is_revoked_too() -> None:
    with pretending(weather({"put": ["lost"] * 9, "find": DOWN})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            assert await h.published(KeyIssued) == []
            assert outside.ledger.opening("t1") == {"b1": "r1"}
            await h.publish(cancelled())
            await h.settled()
            assert outside.ledger.opening("t1") == {}


async def test_a_key_is_revoked_although_the_vendor_failed_because_it_is_tried_until_it_is_done() -> None:
    with pretending(weather({"revoke": ["error"] * 30, "find": DOWN})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.publish(check_out_started(asks="key"))
            await h.settled()
            assert [e.data.operation for e in await h.published(VendorErred)] == ["revoke"]
            assert await queue() == [("revoke", "vendor_error")]
            assert await h.published(KeyRevoked) == []
            await patient(h)
            assert [e.data.reason for e in await h.published(KeyRevoked)] == ["checked_out"]
            assert outside.ledger.opening("t1") == {}
            assert await queue() == []


async def test_a_key_is_revoked_by_hand_where_the_vendor_never_answers() -> None:
    with pretending(weather({"revoke": ["error"] * 999})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.publish(check_out_started(asks="key"))
            await h.settled()
            assert outside.ledger.opening("t1") == {"b1": "r1"}
            await revoke_manually("t1", "b1")
            await revoke_manually("t1", "b1")
            await h.settled()
            assert outside.ledger.opening("t1") == {}
            await patient(h)
            assert [(e.data.credential_id, e.data.reason) for e in await h.published(KeyRevoked)] == [
                ("key-b1", "checked_out")
            ]
            assert await queue() == []
            assert await h.held(lock_integration) == []


async def test_a_key_can_be_revoked_for_safety_during_the_stay(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        await revoke_manually("t1", "b1")
        await h.publish(reallocated(first=2, last=4))
        await h.publish(check_in_started())
        await h.settled()
        assert [e.data.reason for e in await h.published(KeyRevoked)] == ["security"]
        assert outside.ledger.opening("t1") == {}
        with pytest.raises(Reject, match="over"):
            await issue_manually("t1", "b1")


async def test_a_key_follows_a_change_of_dates(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        await h.publish(dates_changed(first=2, last=5))
        await h.publish(reallocated(first=2, last=5, room_id="r2"))
        await h.settled()
        (key,) = await h.published(KeyUpdated)
        assert (key.data.change_id, key.data.room_id, key.data.check_out) == ("c1", "r2", day(5))
        assert outside.ledger.opening("t1") == {"b1": "r2"}
        await h.assert_replay_safe()


@pytest.mark.parametrize("first", ["swap", "booking"])
async def test_the_key_is_for_the_new_room_whichever_of_booking_and_swap_is_heard_of_first(
    outside: World, first: str
) -> None:
    async with Harness(lock_integration) as h:
        facts = [reallocated(first=2, last=5, room_id="r2"), confirmed()]
        for fact in facts if first == "swap" else reversed(facts):
            await h.publish(fact)
            await h.settled()
        assert len(await h.published(KeyIssued)) == 1
        assert outside.ledger.opening("t1") == {"b1": "r2"}
        ((check_in, check_out),) = outside.ledger.read("SELECT check_in, check_out FROM credentials")
        assert (check_in, check_out) == ("2027-02-02", "2027-02-05")


async def test_without_a_key_a_change_of_dates_changes_the_one_that_comes_later(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed(cash=True))
        await h.publish(reallocated(first=2, last=5, room_id="r2"))
        await h.settled()
        (answer,) = await h.published(KeyUpdated)
        assert (answer.data.credential_id, answer.data.change_id) == ("", "c1")
        await h.publish(check_in_started())
        await h.settled()
        (key,) = await h.published(KeyIssued)
        assert (key.data.room_id, key.data.check_out) == ("r2", day(5))


async def test_a_key_that_does_not_follow_is_tried_again_by_itself() -> None:
    with pretending(weather({"put": errors(9, after=1)})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            await h.publish(reallocated(first=2, last=5, room_id="r2"))
            await h.settled()
            assert [e.data.operation for e in await h.published(VendorErred)] == ["update"]
            assert await queue() == [("update", "vendor_error")]
            await patient(h)
            assert [e.data.change_id for e in await h.published(KeyUpdated)] == ["c1"]
            assert outside.ledger.opening("t1") == {"b1": "r2"}
            assert await queue() == []


async def test_a_key_that_does_not_follow_is_asked_for_again_by_one_click() -> None:
    with pretending(weather({"put": errors(8, after=1)})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            await h.publish(reallocated(first=2, last=5, room_id="r2"))
            await h.settled()
            await h.publish(dates_changed(first=2, last=5, attempt=2, missing=("key",)))
            await h.settled()
            assert [e.data.change_id for e in await h.published(KeyUpdated)] == ["c1"]
            await patient(h)
            assert len(await h.published(KeyUpdated)) == 1
            assert outside.ledger.opening("t1") == {"b1": "r2"}


async def test_a_key_that_does_not_follow_is_cut_anew_by_hand() -> None:
    with pretending(weather({"put": errors(999, after=1)})) as outside:
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            await h.publish(reallocated(first=2, last=5, room_id="r2"))
            await h.settled()
            await issue_manually("t1", "b1")
            await h.settled()
            assert [e.data.change_id for e in await h.published(KeyUpdated)] == ["c1"]
            assert outside.ledger.opening("t1") == {"b1": "r2"}


async def test_an_update_that_reaches_the_vendor_after_the_end_of_the_stay_leaves_no_key(
    outside: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, revoke = SimulatedLockVendor.put, SimulatedLockVendor.revoke
    reached: list[Credential] = []
    ended = asyncio.Event()

    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()

        async def overtaken(self: SimulatedLockVendor, credential: Credential) -> None:
            if not reached:
                reached.append(credential)
                await h.publish(check_out_started(asks="key"))
                await asyncio.wait_for(ended.wait(), 10)
            await put(self, credential)

        async def heard(self: SimulatedLockVendor, credential_id: str) -> None:
            await revoke(self, credential_id)
            ended.set()

        monkeypatch.setattr(SimulatedLockVendor, "put", overtaken)
        monkeypatch.setattr(SimulatedLockVendor, "revoke", heard)
        await h.publish(reallocated(first=2, last=5, room_id="r2"))
        await h.settled()
        await patient(h)
        assert len(reached) == 1
        assert outside.ledger.opening("t1") == {}
        assert len(await h.published(KeyRevoked)) == 1


async def test_a_key_is_suspended_and_reinstated(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        for _ in range(2):
            await suspend("t1", "b1", reason="police")
        assert outside.ledger.opening("t1") == {}
        for _ in range(2):
            await reinstate("t1", "b1")
        await h.settled()
        assert [e.data.reason for e in await h.published(KeySuspended)] == ["police"]
        assert len(await h.published(KeyUpdated)) == 1
        assert outside.ledger.opening("t1") == {"b1": "r1"}


async def test_a_key_that_is_over_or_was_never_there_cannot_be_suspended(outside: World) -> None:
    async with Harness(lock_integration) as h:
        with pytest.raises(Reject, match="nothing is known"):
            await suspend("t1", "b1", reason="police")
        await h.publish(confirmed())
        await h.publish(cancelled())
        await h.settled()
        with pytest.raises(Reject, match="is revoked"):
            await suspend("t1", "b1", reason="police")


async def test_a_suspension_that_the_vendor_does_not_answer_is_not_said() -> None:
    with pretending(weather({"put": errors(9, after=1)})):
        async with Harness(lock_integration) as h:
            await h.publish(confirmed())
            await h.settled()
            with pytest.raises(RetryLater, match="try again"):
                await suspend("t1", "b1", reason="police")
            await h.settled()
            assert await h.published(KeySuspended) == []


async def test_a_suspended_key_is_revoked_at_check_out(outside: World) -> None:
    async with Harness(lock_integration) as h:
        await h.publish(confirmed())
        await h.settled()
        await suspend("t1", "b1", reason="dispute")
        await h.publish(check_out_started(asks="key"))
        await h.settled()
        assert len(await h.published(KeyRevoked)) == 1
        assert await rows(lock_integration, "SELECT state FROM keys") == [("revoked",)]


async def test_a_card_that_is_cut_while_the_stay_ends_opens_nothing(
    outside: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = SimulatedEncoder.cut
    async with Harness(lock_integration) as h:
        await h.publish(confirmed(cash=True))
        await h.settled()

        async def overtaken(self: SimulatedEncoder, credential: Credential) -> None:
            await h.publish(cancelled())
            await h.settled()
            await cut(self, credential)

        monkeypatch.setattr(SimulatedEncoder, "cut", overtaken)
        with pytest.raises(RetryNow):
            await issue_manually("t1", "b1")
        assert outside.ledger.opening("t1") == {}


async def test_devices_are_paired_and_decide_on_the_vendor_of_the_house(outside: World) -> None:
    async with Harness(lock_integration) as h:
        async with lock_integration.transaction("t1") as tx:
            assert await pair_device(tx, "d1", property_id="p1", room_id="r1", vendor="salto")
            assert not await pair_device(tx, "d1", property_id="p1", room_id="r1", vendor="salto")
            with pytest.raises(Reject, match="locks of salto"):
                await pair_device(tx, "d2", property_id="p1", room_id="r2", vendor="wiegand")
        await h.publish(confirmed())
        await h.settled()
        assert [e.data.device_id for e in await h.published(DevicePaired)] == ["d1"]
        assert [e.data.vendor for e in await h.published(KeyIssued)] == ["salto"]
        assert outside.ledger.read("SELECT vendor FROM credentials") == [("salto",)]
