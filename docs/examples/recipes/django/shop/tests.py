"""What the shop does. `manage.py test` makes a database of its own, with the tables of Posthouse in it."""

from django.db import IntegrityError
from django.test import TestCase, TransactionTestCase

from posthouse.testing.django import HarnessTestCase, OutboxTestCase
from shop.events import OrderPlaced, shop
from shop.models import Order, Parcel


class PlacingTest(TestCase):
    def test_an_order_is_placed(self) -> None:
        self.assertEqual(self.client.post("/orders/o1").json(), {"placed": "o1"})
        self.assertEqual(Order.objects.get().order_id, "o1")


class CommittingTest(TransactionTestCase):
    def test_an_order_is_placed(self) -> None:
        self.assertEqual(self.client.post("/orders/o1").json(), {"placed": "o1"})


class SayingTest(OutboxTestCase):
    services = (shop,)

    def test_an_order_is_said(self) -> None:
        self.client.post("/orders/o1")
        self.assertEqual([event.data.order_id for event in self.said.of(OrderPlaced)], ["o1"])

    def test_the_id_of_a_request_is_in_its_answer_and_in_its_event(self) -> None:
        answer = self.client.post("/orders/o1")
        self.assertEqual(
            [event.correlation for event in self.said.of(OrderPlaced)], [answer.headers["X-Correlation-ID"]]
        )

    def test_an_order_that_was_not_placed_is_not_said(self) -> None:
        Order.objects.create(order_id="o1")
        with self.assertRaises(IntegrityError):
            self.client.post("/orders/o1")
        self.assertEqual(self.said.subjects, [])


class PackingTest(HarnessTestCase):
    services = (shop,)

    def test_an_order_is_packed_once(self) -> None:
        self.client.post("/orders/o1")
        self.harness.settled()
        self.assertEqual(list(Parcel.objects.values_list("order_id", flat=True)), ["o1"])
        self.harness.assert_replay_safe()
