from hypothesis import given
from hypothesis import strategies as st

from posthouse.brokers.group.window import Window


def window(*, acked: int = 0, touched: int = 0, size: int = 10) -> Window:
    return Window(acked=acked, touched=touched, size=size)


def test_it_hands_out_what_is_stored_after_the_cursor() -> None:
    assert window(acked=5).take(100, stored=8) == [(6, 8, False)]


def test_it_stops_at_its_size_counted_from_the_committed_cursor() -> None:
    some = window(size=3)
    assert some.take(100, stored=9) == [(1, 3, False)]
    some.ack(1)
    some.ack(3)
    assert some.advance() == 1
    assert some.take(100, stored=9) == [], "the file does not know yet"
    some.committed = 1
    assert some.take(100, stored=9) == [(4, 4, False)]


def test_what_was_handed_back_comes_first_and_in_order() -> None:
    some = window()
    some.take(5, stored=9)
    for number in (4, 1, 2):
        some.nack(number)
    assert some.take(2, stored=9) == [(1, 2, True)]
    assert some.take(3, stored=9) == [(4, 4, True), (6, 7, False)]


def test_a_number_that_is_not_in_hand_cannot_be_handed_back() -> None:
    some = window()
    some.take(2, stored=2)
    some.ack(1)
    some.nack(1)
    some.nack(7)
    assert some.take(10, stored=2) == []


def test_it_is_idle_once_all_is_acknowledged() -> None:
    some = window()
    assert some.idle
    some.take(2, stored=2)
    some.ack(2)
    assert not some.idle
    some.ack(1)
    assert some.idle


@given(st.lists(st.tuples(st.sampled_from(("take", "ack", "nack", "save")), st.integers(1, 30)), max_size=80))
def test_the_cursor_never_passes_an_unacknowledged_number(steps: list[tuple[str, int]]) -> None:
    some, acked, out = window(size=7), set[int](), set[int]()
    for step, n in steps:
        match step:
            case "take":
                got = [n for first, last, _ in some.take(n, stored=25) for n in range(first, last + 1)]
                assert got == sorted(got)
                assert not acked.intersection(got), "acknowledged is never handed out again"
                assert not out.intersection(got), "nothing is in two hands"
                out.update(got)
            case "ack" if n in out:
                some.ack(n)
                acked.add(n)
                out.discard(n)
            case "nack" if n in out:
                some.nack(n)
                out.discard(n)
            case "save":
                some.committed = some.advance()
        prefix = some.advance()
        assert acked.issuperset(range(1, prefix + 1))
        assert prefix + 1 not in acked
        assert some.read <= some.committed + 7


def test_waiting_says_whether_take_would_give_anything() -> None:
    window = Window(acked=0, touched=0, size=2)
    assert not window.waiting(0)
    assert window.waiting(5)
    window.take(9, 5)
    assert not window.waiting(5), "the window is full"
    window.nack(2)
    assert window.waiting(5)


def test_something_is_left_while_the_window_is_full_or_something_was_handed_back() -> None:
    window = Window(acked=0, touched=0, size=2)
    window.take(9, 2)
    assert not window.has_left(2)
    assert window.has_left(3), "an acknowledgement would let it out, without a ring"
    window.nack(1)
    assert window.has_left(2)


def test_what_was_read_without_having_been_taken_is_handed_out_up_to_its_last_number() -> None:
    window = Window(acked=2, touched=0, size=9)
    window.hand_out(4)
    window.hand_out(4)
    assert window.take(9, 5) == [(5, 5, False)]
    assert not window.idle
    for number in (3, 4, 5):
        window.ack(number)
    assert window.advance() == 5


def test_it_knows_what_was_acknowledged_behind_the_cursor_by_itself_and_by_an_earlier_owner() -> None:
    window = Window(acked=0, touched=0, size=9, done=[3, 8])
    window.take(5, 9)
    for number in (1, 3, 4):
        window.ack(number)
    assert (window.acknowledged(), window.prefix) == ([3, 4, 8], 1)


def test_what_was_handed_back_may_have_been_dealt_with_until_it_is_acknowledged() -> None:
    window = Window(acked=0, touched=0, size=9)
    window.take(4, 9)
    window.ack(1)
    assert (window.doubted(closed=True), window.doubted(closed=False)) == (0, 4), "somebody may be at it"
    window.put_back(4)
    window.nack(3)
    assert window.doubted(closed=True) == 3
    window.ack(3)
    assert window.doubted(closed=True) == 0
    assert Window(acked=0, touched=0, size=9, unsure=7).doubted(closed=True) == 7
