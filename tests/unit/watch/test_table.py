"""The table of metrics: names that Prometheus takes, labels of few words, one sentence each."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.errors import ConfigurationError
from posthouse.watch.table import PREFIX, TABLE, Metric, metric
from tests.docs.metric_page import page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

FORBIDDEN = {"tenant", "tenant_id", "key", "id", "event_id", "type", "event_type", "error", "message", "subject", "le"}

NINE = {
    "events_published_total": ("counter", ("service", "topic", "tenant_id_class")),
    "events_consumed_total": ("counter", ("service", "topic", "subscription", "result")),
    "events_dlq_total": ("counter", ("service", "topic", "subscription")),
    "event_processing_duration_seconds": ("histogram", ("service", "topic", "subscription")),
    "outbox_unpublished_count": ("gauge", ("service",)),
    "outbox_oldest_unpublished_seconds": ("gauge", ("service",)),
    "inbox_dedup_skips_total": ("counter", ("service", "topic")),
    "saga_inflight_count": ("gauge", ("service", "saga_name")),
    "saga_completed_total": ("counter", ("service", "saga_name", "outcome")),
}
"""The platform's names as its own specification has them."""

every = pytest.mark.parametrize("one", TABLE.values(), ids=list(TABLE))


@every
def test_a_name_says_its_kind_and_its_unit(one: Metric) -> None:
    assert one.name.endswith("_total") == (one.kind == "counter")
    assert one.name.endswith("_seconds") == (one.unit == "seconds")
    assert one.full == PREFIX + one.name
    assert one.name == one.name.lower()
    assert one.name.replace("_", "").isalnum()


@every
def test_no_label_is_what_an_event_brings(one: Metric) -> None:
    assert not FORBIDDEN & set(one.labels)
    assert len(set(one.labels)) == len(one.labels)
    assert set(one.words) <= set(one.labels)


@every
def test_a_meaning_is_one_sentence(one: Metric) -> None:
    assert one.meaning.endswith(".")
    assert ". " not in one.meaning
    assert one.meaning[0].isupper()


def test_the_platforms_nine_names_come_from_the_table_with_their_labels() -> None:
    found = {one.also.name: (one.kind, tuple(one.also.labels.values())) for one in TABLE.values() if one.also}

    assert found == NINE


def test_another_name_of_a_metric_uses_labels_and_words_that_it_has() -> None:
    for one in TABLE.values():
        if one.also:
            assert set(one.also.labels) <= set(one.labels)
            for label, words in one.also.words.items():
                assert set(words) <= set(one.words[label])


def test_a_metric_is_found_with_and_without_the_prefix() -> None:
    assert metric("outbox_unsent") is metric("posthouse_outbox_unsent") is TABLE["outbox_unsent"]


def test_a_misspelled_metric_is_told_with_what_was_perhaps_meant() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'outbox_unsent'"):
        metric("outbox_unsend")


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it: python -m tests.docs.metric_page > docs/metrics.md"


def test_every_metric_is_on_the_page_once_with_its_labels_and_words() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for one in TABLE.values():
        [line] = [line for line in lines if line.startswith(f"| `{one.full}` |")]
        assert one.meaning in line
        assert all(label in line for label in one.labels)
        assert all(f"`{word}`" in line for words in one.words.values() for word in words)
