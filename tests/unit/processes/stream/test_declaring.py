"""What cannot work is said when an aggregate is declared, all of it at once."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from posthouse import App, Payload, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from tests.unit.processes.stream.folios import Billing, Charged, Folio, FolioOpened, evolve


def add(total: int, event: object) -> int:
    return total + 1


def test_every_event_needs_a_key_and_the_same_topic_and_to_be_ones_own() -> None:
    service = Service("billing")
    App(service, store="sqlite://", broker="memory://")

    @service.event("folio.opened.v1", key="folio_id")
    class Opened(Payload):
        folio_id: str

    @service.event("folio.seen.v1")
    class Seen(Payload):
        folio_id: str

    @service.event("invoice.sent.v1", key="folio_id")
    class Sent(Payload):
        folio_id: str

    @service.external("stays.stay.ended.v1", key="stay_id")
    class Ended(Payload):
        stay_id: str

    with pytest.raises(ConfigurationError) as raised:
        service.aggregate("folio", initial=int, evolve=add, events=(Opened, Seen, Sent, Ended))
    assert [problem.partition(":")[2].strip()[:60] for problem in raised.value.problems] == [
        "stays.stay.ended.v1 belongs to another service, which alone may say it"[:60],
        "billing.folio.seen.v1 has no key, so nobody could tell which stream it is in"[:60],
        "its events are in several topics (billing.folio, billing.invoice, stays.stay)"[:60],
    ]
    assert service.declared.aggregates == {}


def test_a_topic_for_each_subject_cannot_keep_a_stream_in_order() -> None:
    service = Service("billing", topics="subject")
    App(service, store="sqlite://", broker="memory://")
    events = [
        service.event(f"folio.{verb}.v1", key="folio_id")(cls)
        for verb, cls in (("charged", Charged), ("opened", FolioOpened))
    ]
    with pytest.raises(ConfigurationError, match=r"several topics .* the service topics='aggregate'"):
        service.aggregate("folio", initial=int, evolve=add, events=events)


def test_a_name_or_an_event_belongs_to_one_aggregate() -> None:
    billing = Billing()
    with pytest.raises(ConfigurationError, match=r"there is one of that name already") as raised:
        billing.service.aggregate("folio", initial=int, evolve=add, events=(Charged, FolioOpened))
    assert "billing.folio.charged.v1, billing.folio.opened.v1 belongs to the aggregate 'folio'" in str(raised.value)
    assert list(billing.service.declared.aggregates) == ["folio"]


@pytest.mark.parametrize("name", ["", "fo\x00lio"])
def test_a_name_is_a_text_that_people_can_read(name: str) -> None:
    with pytest.raises(ConfigurationError, match="its name must be a text that people can read"):
        Service("billing").aggregate(name, initial=int, evolve=add, events=())


def test_an_aggregate_without_events_is_refused_with_everything_else() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Service("billing").aggregate("folio", initial=int, evolve=add, events=(), snapshot_every=0)
    assert len(raised.value.problems) == 2


def test_a_class_that_is_no_event_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="int is not an event"):
        Service("billing").aggregate("folio", initial=int, evolve=add, events=(int,))


def test_a_state_that_cannot_be_written_has_no_snapshots() -> None:
    @dataclasses.dataclass
    class Locked:
        lock: threading.Thread

    billing = Billing()

    @billing.service.event("stay.begun.v1", key="stay")
    class Begun(Payload):
        stay: str

    for initial in (int, lambda: Locked(threading.current_thread())):
        with pytest.raises(ConfigurationError, match=r"aggregate 'stay': no snapshot can be taken of a (int|Locked)"):
            billing.service.aggregate("stay", initial=initial, evolve=lambda s, e: s, events=(Begun,), snapshot_every=5)
    billing.service.aggregate("stay", initial=int, evolve=add, events=(Begun,))


async def test_an_upcast_that_only_a_stream_needs_leads_somewhere() -> None:
    service = Service("billing")
    App(service, store="sqlite://", broker="memory://")

    @service.event("folio.charged.v1", key="folio_id")
    class V1(Payload):
        folio_id: str

    @service.event("folio.charged.v2", key="folio_id")
    class V2(Payload):
        folio_id: str
        cents: int = 0

    @service.upcast(V1, to=V2)
    def lifted(old: V1) -> V2:
        return V2(old.folio_id)

    with pytest.raises(ConfigurationError, match="which no handler takes"):
        await app_of(service).opened.prepare()
    service.aggregate("folio", initial=int, evolve=add, events=(V2,))
    await app_of(service).opened.prepare()
    await service.aclose()


def test_the_state_of_the_tests_is_the_sum_of_its_facts() -> None:
    folio = evolve(evolve(Folio(), FolioOpened("f1", "Ann")), Charged("f1", 5))
    assert folio == Folio("Ann", 5, (5,), open=True)
