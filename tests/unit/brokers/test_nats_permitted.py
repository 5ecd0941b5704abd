"""What the permissions of a NATS user come to. The servers themselves: `tests/integration/test_rights_nats.py`."""

from __future__ import annotations

import pytest

from posthouse.brokers.nats.permitted import allowed, covers, meets
from posthouse.brokers.nats.users import Permissions, Subjects
from posthouse.survey import Wish


@pytest.mark.parametrize(
    ("wide", "narrow", "covered", "met"),
    [
        ("a.>", "a.b.*", True, True),
        ("a.*", "a.b", True, True),
        ("a.b", "a.*", False, True),
        ("a.*", "a.>", False, True),
        ("a.*.c", "a.b.*", False, True),
        ("a.>", "a", False, False),
        ("a.*", "a.b.c", False, False),
        (">", "a", True, True),
        ("a.b", "a.c", False, False),
    ],
)
def test_patterns_are_compared_word_by_word(wide: str, narrow: str, covered: bool, met: bool) -> None:
    assert covers(wide, narrow) is covered
    assert meets(wide, narrow) is met
    assert meets(narrow, wide) is met


def test_whoever_has_no_permissions_may_do_everything() -> None:
    wishes = [Wish("publish", "a.b"), Wish("read", "a.b"), Wish("publish"), Wish("read")]
    assert allowed(Permissions(), wishes, "_INBOX_me") == [True] * 4


def test_the_dead_letters_of_a_topic_are_no_partition_of_it() -> None:
    mine = Permissions(publish=Subjects(["a.b.dlq", "a.b.dlq.*"]), subscribe=Subjects(["_INBOX_me.>"]))
    assert allowed(mine, [Wish("publish", "a.b"), Wish("publish", "a.b.dlq")], "_INBOX_me") == [False, True]


@pytest.mark.parametrize("of", ["_INBOX_you.>", "_INBOX.>", "_INBOX.*.*", "_INBOX.nobodys.>"])
def test_whoever_hears_the_answers_of_others_reads_what_they_fetch(of: str) -> None:
    mine = Permissions(publish=Subjects(["a.b.*"]), subscribe=Subjects(["_INBOX_me.>", of]))
    assert allowed(mine, [Wish("read")], "_INBOX_me") == [True]
    own = Permissions(publish=Subjects(["a.b.*"]), subscribe=Subjects(["_INBOX_me.>"]))
    assert allowed(own, [Wish("read")], "_INBOX_me") == [False]
