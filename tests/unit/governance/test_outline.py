"""What is read from the source of a saga, for the catalogue and its diagrams."""

from __future__ import annotations

from posthouse import Event, Payload, Service
from posthouse.governance.document import MethodEntry, from_json, to_json
from posthouse.governance.exports import Source, export
from posthouse.governance.exports.states import states
from posthouse.governance.listing import catalogue_of
from posthouse.governance.outline import may_say, saga_entry
from posthouse.processes import Saga, Turn, deadline, starts, step, undo
from tests.unit.processes.saga import test_order
from tests.unit.processes.saga.claims import claims
from tests.unit.processes.saga.hotel import inventory, payment, reservation

HOTEL = catalogue_of([reservation, inventory, payment])
(BOOKING,) = HOTEL.sagas

shop = Service("shop")


@shop.event("order.placed.v1")
class Placed(Payload):
    order_id: str


@shop.event("order.sent.v1")
class Sent(Payload):
    order_id: str


@shop.event("order.dropped.v1")
class Dropped(Payload):
    order_id: str


store = Service("store")


@store.event("parcel.weighed.v1")
class Weighed(Payload):
    grams: int


def give_up(turn: Turn, why: str) -> None:
    turn.compensate(why)


@shop.saga("order", correlate="order_id")
class OrderSaga(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        self._arm(turn)

    def _arm(self, turn: Turn) -> None:
        turn.set(self.too_slow, after=5.0)

    @undo(begin)
    def drop(self, turn: Turn) -> None:
        made = Dropped(order_id=self.order_id)
        turn.publish(made)

    @deadline(60.0)
    def too_slow(self, turn: Turn) -> None:
        give_up(turn, "too slow")

    @step(Placed)
    def placed(self, event: Event[Placed], turn: Turn) -> None:
        self._arm(turn)
        seen = [Sent(order_id=event.data.order_id), Weighed(grams=1)]
        seen.clear()


def method(name: str) -> MethodEntry:
    return next(entry for entry in BOOKING.methods if entry.name == name)


def test_methods_stand_with_what_they_take_and_what_their_source_says() -> None:
    assert method("hold") == MethodEntry(
        name="hold", kind="starts", publishes=("hotel.reservation.booking.held.v1",), sets=("hold_expired",)
    )
    assert method("paid").decides == ("complete",)
    assert method("room_committed").clears == ("hold_expired",)
    assert method("payment_failed").takes == ("hotel.payment.intent.failed.v1",)
    release = method("release_room")
    assert (release.undoes, release.takes, release.seconds) == (
        "room_committed",
        ("hotel.inventory.allocation.released.v1",),
        60.0,
    )
    assert method("hold_expired").seconds == 30.0


def test_helpers_of_the_class_and_of_its_package_are_followed() -> None:
    (order,) = catalogue_of([shop]).sagas
    found = {entry.name: entry for entry in order.methods}
    assert found["begin"].sets == ("too_slow",)
    assert found["too_slow"].decides == ("compensate",)
    assert found["drop"].publishes == ("shop.order.dropped.v1",)
    assert found["placed"].clears == ()


def test_what_an_event_may_lead_to_includes_deadlines_and_undos() -> None:
    (order,) = catalogue_of([shop]).sagas
    assert may_say(order, ["shop.order.placed.v1"]) == {"shop.order.sent.v1", "shop.order.dropped.v1"}
    assert may_say(order, ["shop.order.sent.v1"]) == set()


def test_handlers_of_a_saga_are_known_to_publish_so_that_flows_go_through_them() -> None:
    published = {handler.name.rpartition(".")[2]: handler.publishes for handler in HOTEL.handlers}
    assert published["payment_failed"] == ("hotel.reservation.booking.cancelled.v1",)
    assert published["paid"] == ("hotel.reservation.booking.confirmed.v1", "hotel.reservation.refund.requested.v1")


def test_a_catalogue_with_sagas_is_read_back_as_it_was_and_one_without_is_read() -> None:
    assert from_json(to_json(HOTEL)) == HOTEL
    assert from_json(b"{}").sagas == ()


def test_the_diagram_holds_steps_undos_in_reverse_and_every_decision() -> None:
    assert states(BOOKING).splitlines()[1:] == [
        "stateDiagram-v2",
        "  [*] --> running",
        "  state running {",
        "    [*] --> s0: start_saga",
        "    s0: hold, says booking.held.v1",
        "    s1: room_committed",
        "    s2: paid, says booking.confirmed.v1",
        "    s0 --> s1: hotel.inventory.allocation.committed.v1",
        "    s0 --> s2: hotel.payment.intent.captured.v1",
        "    note left of s0: sets hold_expired after 30 s",
        "    note right of s2: late hotel.payment.intent.captured.v1#58; paid_too_late, says refund.requested.v1",
        "  }",
        "  running --> compensating: payment_failed #40;hotel.payment.intent.failed.v1#41;",
        "  running --> completed: paid #40;hotel.payment.intent.captured.v1#41;",
        "  running --> partial: reviewed #40;hotel.payment.review.opened.v1#41;",
        "  running --> compensating: hold_expired after 30 s",
        "  state compensating {",
        "    u0: release_room, undoes room_committed, until hotel.inventory.allocation.released.v1 within 60 s",
        "    u1: drop_hold, says booking.cancelled.v1, undoes hold",
        "    u0 --> u1",
        "  }",
        "  running --> compensating: cancel (operator)",
        "  compensating --> compensated: all undone",
        "  compensating --> compensation_failed: an undo fails for good",
        "  compensation_failed --> compensating: retry, resume (operator)",
        "  compensated --> [*]",
        "  partial --> running: retry #40;operator#41;#58; look_again",
        "  partial --> completed: resume #40;operator#41;",
        "  completed --> [*]",
        "```",
    ]


def test_the_diagram_shows_the_order_of_steps_and_a_join_as_a_bar() -> None:
    (yard,) = catalogue_of([test_order.shop]).sagas
    running = states(yard).partition("  state running {\n")[2].partition("  }\n")[0]
    assert [line.strip() for line in running.splitlines()] == [
        "[*] --> s0: start_saga",
        "s0: begin",
        "s1: part, says order.said.v1",
        "s2: money",
        "s3: sent, says order.said.v1",
        "s4: packed, says order.said.v1",
        "s5: all_done",
        "s0 --> s1: town.yard.part.came.v1",
        "s0 --> s2: town.yard.money.came.v1",
        "s4 --> s3: town.yard.parcel.sent.v1",
        "state js4 <<join>>",
        "s1 --> js4",
        "s2 --> js4",
        "js4 --> s4",
        "state js5 <<join>>",
        "s4 --> js5",
        "s3 --> js5",
        "js5 --> s5",
        "note left of s0: sets slow after 30 s",
        "note right of s5: on town.yard.order.asked.v1#58; asked, says order.said.v1",
    ]


def test_a_page_of_the_catalogue_draws_its_sagas() -> None:
    page = export(Source(document=HOTEL), "markdown")["catalogue.md"]
    assert "## Saga booking of reservation\n\nHold the room, commit it, take the money, confirm.\n" in page
    assert states(BOOKING) in page


def test_the_diagram_tells_of_people_and_of_children() -> None:
    drawn = states(saga_entry(claims.declared.saga_types["claim"]))
    assert "s0: opened, says claim.opened.v1, begins InspectionSaga" in drawn
    assert "s1: approved by claims-manager, says payout.ordered.v1" in drawn
