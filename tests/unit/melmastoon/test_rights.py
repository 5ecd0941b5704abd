"""Who may say, read and replay what on the platform, and by whose word a person does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from melmastoon.facts.analytics import SnapshotComputed
from melmastoon.facts.everything import SERVICES, facts_of
from melmastoon.facts.payment import IntentRefunded
from melmastoon.facts.reservation import CheckInStarted
from melmastoon.notification import notification
from melmastoon.platform import SERVICES as AT_WORK
from melmastoon.reservation import desk, reservation
from melmastoon.rights import rights_of_platform
from melmastoon.secrets import secrets_of
from posthouse import App, Event, RuleBroken, Service, app_of
from posthouse.errors import ConfigurationError, GrantNeeded
from posthouse.replays import seek
from posthouse.store import Action
from posthouse.testing import Harness
from posthouse.trust.rights import Asked, signed_in
from posthouse.trust.rights.rights import Party
from tests.unit.melmastoon.reservation.house import PARTS, House, open_house

RIGHTS = rights_of_platform(grants=True)
TOPICS = sorted({fact.topic for fact in facts_of(SERVICES)})


def _readers(topic: str) -> set[str]:
    """Services that declare a handler of a topic."""
    found = set()
    for service in AT_WORK:
        heard = {name for handlers in service.declared.consumers.values() for name in handlers}
        types = (service.declared.catalogue.get(name) for name in heard)
        if any(known is not None and known.topic == topic for known in types):
            found.add(service.name)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_said_by_its_owner_alone_and_its_readers_are_those_that_are_listed(topic: str) -> None:
    owner = topic.split(".")[1]
    parties = [Party(service.name, service.namespace) for service in SERVICES]
    assert [party.name for party in parties if not RIGHTS.publish_problem(party, topic)] == [owner]
    listed = RIGHTS.of("read", topic)
    if listed is not None:
        assert set(listed) >= _readers(topic) - {owner}
        assert "theme" not in listed


@pytest.mark.parametrize(
    ("topic", "readers"),
    [("melmastoon.analytics.snapshot", {"audit", "reporting"}), ("melmastoon.search_aggregation.listing", {"audit"})],
)
def test_what_is_about_several_tenants_is_read_by_whoever_is_on_the_list(topic: str, readers: set[str]) -> None:
    assert _readers(topic) - {topic.split(".")[1]} == readers == set(RIGHTS.of("read", topic) or ())


async def test_a_service_says_no_fact_of_another() -> None:
    async with Harness(reservation) as house:
        refund = IntentRefunded(booking_id="b1", intent_id="i1", refund_id="r1", amount_cents=1, currency="USD")
        with pytest.raises(RuleBroken, match="publish-right"):
            async with reservation.transaction("t1") as tx:
                tx.publish(refund, idempotency_key="reservation:refund:b1")
        await house.settled()
        assert await house.published(IntentRefunded) == []


@pytest.mark.parametrize("fact", [CheckInStarted, SnapshotComputed])
async def test_a_newcomer_that_is_not_listed_does_not_start(fact: type[object]) -> None:
    gossip = Service("gossip", namespace="melmastoon")

    @gossip.on(fact)
    async def listen(event: Event[object]) -> None: ...

    App(gossip, rights=RIGHTS)
    with pytest.raises(ConfigurationError, match="read-right"):
        async with Harness(gossip):
            pass


async def test_money_is_read_once_by_whoever_writes_to_guests() -> None:
    async with Harness(notification):
        again = Action(verb="seek", by="ada", why="ticket 7", consumer="notification.alerts")
        with pytest.raises((ConfigurationError, RuleBroken), match="replay-right"):
            await seek(notification, ["melmastoon.payment.intent"], again, position=0)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Reservation as in production; a guest is half checked in."""
    before = app_of(reservation)
    App(reservation, rights=RIGHTS, secrets=secrets_of("reservation"))
    try:
        async with open_house() as house:
            await house.confirmed()
            await house.check_in()
            await house.hears(PARTS["folio"])
            await house.waits(30.0)
            assert await house.saga_status("check_in") == "partial"
            yield house
            await house.hears(PARTS["key"], PARTS["welcome"])
            assert (await house.booking()).status == "checked_in"
    finally:
        reservation.hosted_by(before)


async def test_an_operator_needs_the_word_of_somebody_else_to_run_a_step_again(house: House) -> None:
    sagas, grants = app_of(reservation).sagas, app_of(reservation).grants
    with pytest.raises(GrantNeeded, match="no grant to replay runs for ada"):
        await sagas.retry("check_in", "b1", tenant="t1", by="ada")
    assert len(await house.said(CheckInStarted)) == 1
    with signed_in(True):
        asked = await grants.request(Asked(service="reservation"), by="ada", why="ticket 7")
        await grants.approve(asked.id, by="grace")
        await sagas.retry("check_in", "b1", tenant="t1", by="ada")
    await house.harness.settled()
    assert len(await house.said(CheckInStarted)) == 2


async def test_the_front_desk_presses_its_own_buttons(house: House) -> None:
    await desk.retry_check_in("t1", "b1", by="amina")
    await house.harness.settled()
    assert [said.attempt for said in await house.said(CheckInStarted) if isinstance(said, CheckInStarted)] == [1, 2]
    [pressed] = [action for action in await app_of(reservation).actions.find() if action.verb == "saga retry"]
    assert pressed.by == "amina"
