"""The world outside: moods that follow from a seed, and books that outlive a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from melmastoon.vendors.ledger import Ledger
from melmastoon.vendors.lock import Credential, SimulatedEncoder, SimulatedLockVendor
from melmastoon.vendors.payment import CardRail, Charge, Moved, Payback, Refused, SimulatedGateway
from melmastoon.vendors.weather import Scripted, Seeded, VendorDown, VendorTimeout, VendorTrouble
from melmastoon.vendors.world import FAULTS, LATENCY, SEED, VENDORS, World, world
from posthouse.errors import ConfigurationError

CHARGE = Charge(key="t1:i1", tenant="t1", booking_id="b1", amount_cents=500)
KEY = Credential(id="t1:k1", tenant="t1", booking_id="b1", room_id="r1", check_in="2027-02-01", check_out="2027-02-03")


def payback(key: str, cents: int) -> Payback:
    return Payback(key=key, charge=CHARGE.key, tenant="t1", booking_id="b1", amount_cents=cents)


def test_the_same_seed_gives_the_same_weather_and_another_one_another() -> None:
    asked = [("capture", f"i{number}", attempt) for number in range(200) for attempt in (1, 2, 3)]
    first, same, other = ([Seeded(seed=seed, faults=0.3).mood(*one) for one in asked] for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert set(first) == {"fine", "slow", "error", "timeout", "lost", "late", "twice"}
    assert 0.6 < first[::3].count("fine") / 200 < 0.8


def test_a_calm_day_has_no_faults() -> None:
    calm = Seeded(seed=1)
    assert {calm.mood("put", f"k{number}", 1) for number in range(500)} == {"fine"}
    assert not any(calm.declines("capture", f"i{number}") for number in range(500))


def test_questions_are_answered_after_a_try_or_two_even_on_the_worst_day() -> None:
    worst = Seeded(seed=3, faults=1.0)
    for number in range(300):
        for operation in ("look", "void", "find"):
            assert worst.mood(operation, f"i{number}", 3) == "fine"


async def test_an_error_did_nothing_and_is_over_after_its_attempts() -> None:
    outside = World(weather=Scripted(moods={"capture": ["error", "error"]}))
    gateway = SimulatedGateway("card", outside)
    for _ in range(2):
        with pytest.raises(VendorDown):
            await gateway.capture(CHARGE)
    assert outside.ledger.charged("t1") == {}
    assert await gateway.capture(CHARGE) == Moved(500)


async def test_a_lost_answer_was_done_and_a_look_says_so() -> None:
    gateway = SimulatedGateway("card", World(weather=Scripted(moods={"capture": ["lost"]})))
    with pytest.raises(VendorTimeout):
        await gateway.capture(CHARGE)
    assert await gateway.look(CHARGE.key) == Moved(500)


async def test_what_is_late_happens_after_the_question_was_answered() -> None:
    outside = World(weather=Scripted(moods={"capture": ["late"]}))
    gateway = SimulatedGateway("card", outside)
    with pytest.raises(VendorTimeout):
        await gateway.capture(CHARGE)
    assert await gateway.look(CHARGE.key) is None
    assert outside.ledger.charged("t1") == {"b1": 500}
    assert await gateway.void(CHARGE.key) == Moved(500)


async def test_the_same_key_is_the_same_charge() -> None:
    outside = World(weather=Scripted(moods={"capture": ["twice"]}))
    gateway = SimulatedGateway("card", outside)
    for _ in range(3):
        assert await gateway.capture(CHARGE) == Moved(500)
    assert outside.ledger.charged("t1") == {"b1": 500}
    assert outside.ledger.read("SELECT asked FROM charges") == [(4,)]


@pytest.mark.parametrize("rail", ["card", "paypal", "mfs"])
async def test_nothing_happens_under_a_voided_key_and_vendors_words_stay_outside(rail: CardRail) -> None:
    outside = World(weather=Scripted(declined=frozenset(["t1:i2"])))
    gateway = SimulatedGateway(rail, outside)
    assert await gateway.void(CHARGE.key) == Refused("voided")
    assert await gateway.capture(CHARGE) == Refused("voided")
    declined = Charge(key="t1:i2", tenant="t1", booking_id="b1", amount_cents=500)
    assert await gateway.capture(declined) == Refused("declined")
    assert await gateway.look("t1:i2") == Refused("declined")
    assert outside.ledger.charged("t1") == {}


async def test_no_more_is_refunded_than_was_captured() -> None:
    outside = World()
    gateway = SimulatedGateway("card", outside)
    await gateway.capture(CHARGE)
    assert await gateway.refund(payback("r1", 300)) == Moved(300)
    assert await gateway.refund(payback("r1", 300)) == Moved(300)
    assert await gateway.refund(payback("r2", 201)) == Refused("too_much")
    assert await gateway.refund(payback("r3", 200)) == Moved(200)
    assert outside.ledger.charged("t1") == {"b1": 0}


async def test_a_blocked_key_opens_nothing_even_if_the_cloud_hears_of_it_later() -> None:
    outside = World()
    cloud, encoder = SimulatedLockVendor("salto", outside), SimulatedEncoder(outside)
    await cloud.put(KEY)
    assert outside.ledger.opening("t1") == {"b1": "r1"}
    assert await cloud.find(KEY.id) == KEY
    await encoder.block(KEY.id)
    assert outside.ledger.opening("t1") == {}
    await encoder.block("t1:k2")
    await cloud.put(Credential(id="t1:k2", tenant="t1", booking_id="b2", room_id="r2", check_in="", check_out=""))
    assert outside.ledger.opening("t1") == {}
    await cloud.revoke(KEY.id)
    assert await cloud.find(KEY.id) == "revoked"
    assert await cloud.find("t1:k3") is None


async def test_the_books_outlive_the_process_and_so_do_its_attempts(tmp_path: Path) -> None:
    path = tmp_path / "vendors.db"
    before = World(Ledger(path), Scripted(moods={"capture": ["lost", "error"]}))
    with pytest.raises(VendorTrouble):
        await SimulatedGateway("card", before).capture(CHARGE)
    before.ledger.close()
    after = World(Ledger(path), Scripted(moods={"capture": ["lost", "error"]}))
    assert after.ledger.charged("t1") == {"b1": 500}
    with pytest.raises(VendorDown):
        await SimulatedGateway("card", after).capture(CHARGE)
    after.ledger.close()


async def test_the_environment_describes_the_world(tmp_path: Path) -> None:
    environment = {VENDORS: str(tmp_path / "vendors.db"), SEED: "7", FAULTS: "0.5", LATENCY: "0"}
    described = world(environment)
    assert world(dict(environment)) is described
    assert described.weather == Seeded(seed=7, faults=0.5)
    assert (tmp_path / "vendors.db").exists()
    described.ledger.close()


@pytest.mark.parametrize(("name", "text"), [(SEED, "x"), (FAULTS, "2"), (FAULTS, "x"), (LATENCY, "-1")])
def test_a_world_that_cannot_be_is_refused_with_an_example(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}="):
        world({name: text})
