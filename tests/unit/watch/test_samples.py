"""Samples: what the table does not have cannot be said."""

from __future__ import annotations

import math

import pytest

from posthouse.errors import ConfigurationError
from posthouse.watch.samples import Distribution, Sample


def test_a_sample_has_the_labels_of_the_table_and_no_others() -> None:
    assert Sample("outbox_unsent", {"topic": "shop.orders", "service": "orders"}, 3).of.name == "outbox_unsent"
    for wrong in ({"service": "orders"}, {"service": "orders", "topic": "a", "tenant": "t"}, {}):
        with pytest.raises(ConfigurationError, match="has the labels service, topic"):
            Sample("outbox_unsent", wrong, 3)


def test_a_sample_of_a_metric_that_is_not_in_the_table_cannot_be_made() -> None:
    with pytest.raises(ConfigurationError, match="there is no metric"):
        Sample("outbox_happy", {}, 1)


def test_a_label_with_a_list_of_words_takes_these_and_the_others() -> None:
    place = {"service": "orders", "consumer": "mail", "topic": "shop.orders"}
    Sample("held", {**place, "state": "dead"}, 1)
    Sample("held", {**place, "state": "(others)"}, 1)
    with pytest.raises(ConfigurationError, match="state of held is one of retrying"):
        Sample("held", {**place, "state": "deceased"}, 1)


def test_a_histogram_has_a_distribution_and_nothing_else_has() -> None:
    of = {"service": "orders", "consumer": "mail"}
    Sample("event_age_seconds", of, Distribution([(1.0, 1)], 0.5, 1))
    with pytest.raises(ConfigurationError, match="its value is a Distribution"):
        Sample("event_age_seconds", of, 3.0)
    with pytest.raises(ConfigurationError, match="its value is a number"):
        Sample("in_hand", of, Distribution([], 0, 0))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_nobody_knows_is_left_out_and_not_said_as_no_number(value: float) -> None:
    with pytest.raises(ConfigurationError, match="leave out what nobody knows"):
        Sample("timers", {"service": "orders"}, value)
