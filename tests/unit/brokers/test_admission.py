from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.admission import BEHIND, Admission, admit, frame_size

REFUSED = Verdict(False, "no")


def frame(key: str | None = None, *, topic: str = "t", body: bytes = b"x") -> Frame:
    return Frame(topic=topic, id="1", key=key, body=body)


def test_frames_of_a_known_topic_are_accepted() -> None:
    assert admit([frame("a"), frame()], {"t"}, 10) == [ACCEPTED, ACCEPTED]


def test_an_unknown_topic_is_refused_for_now_and_says_how_to_make_it() -> None:
    (verdict,) = admit([frame(topic="u")], {"t"}, 10)
    assert (verdict.accepted, verdict.final) == (False, False)
    assert "ensure" in verdict.reason


def test_followers_of_a_refused_key_wait_and_other_keys_pass() -> None:
    verdicts = admit([frame("a", body=bytes(11)), frame("b"), frame("a"), frame()], {"t"}, 10)
    assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [
        (False, True),
        (True, False),
        (False, False),
        (True, False),
    ]


def test_the_same_key_in_another_topic_is_another_key() -> None:
    verdicts = admit([frame("a", body=bytes(11)), frame("a", topic="u")], {"t", "u"}, 10)
    assert [verdict.accepted for verdict in verdicts] == [False, True]


def test_a_large_frame_without_key_holds_nobody_up() -> None:
    verdicts = admit([frame(body=bytes(11)), frame()], {"t"}, 10)
    assert [verdict.accepted for verdict in verdicts] == [False, True]


def test_headers_count_in_bytes() -> None:
    assert frame_size(Frame(topic="t", id="1", body=b"123", headers={"a": "ü"})) == 6


def fits(_: int) -> str:
    return ""


def test_what_does_not_fit_is_refused_for_good_and_holds_back_its_key() -> None:
    call = Admission([frame("a"), frame("b"), frame("a"), frame("a", topic="u")], {"t", "u"}, 10)
    assert call.by_topic(lambda index: "odd" if index == 0 else "") == {"t": [1], "u": [3]}
    assert call.verdicts == [Verdict(False, "odd", final=True), ACCEPTED, BEHIND, ACCEPTED]


def test_what_was_not_admitted_is_not_asked_about() -> None:
    call = Admission([frame("a", body=bytes(11)), frame("a"), frame(topic="u")], {"t"}, 10)
    assert call.by_topic(lambda index: f"asked about {index}") == {}
    assert not any("asked" in verdict.reason for verdict in call.verdicts)


def test_chunks_are_bounded_by_count_and_bytes_and_keep_the_order() -> None:
    call = Admission([frame(body=bytes(n)) for n in (1, 9, 1, 9, 9)], {"t"}, 10)
    assert list(call.chunks(range(5), most=3, most_bytes=10)) == [[0, 1], [2, 3], [4]]
    assert list(call.chunks(range(5), most=2, most_bytes=100)) == [[0, 1], [2, 3], [4]]
    assert list(call.chunks([], most=2, most_bytes=100)) == []


def test_a_refusal_holds_back_its_key_in_the_chunks_that_follow() -> None:
    call = Admission([frame("a"), frame("b"), frame("a"), frame("a"), frame("b")], {"t"}, 10)
    chunks = call.chunks(call.by_topic(fits)["t"], most=2, most_bytes=100)
    assert next(chunks) == [0, 1]
    call.refuse(0, REFUSED)
    assert list(chunks) == [[4]]
    assert call.verdicts == [REFUSED, ACCEPTED, BEHIND, BEHIND, ACCEPTED]


def test_a_frame_without_a_key_holds_back_nobody() -> None:
    call = Admission([frame(), frame()], {"t"}, 10)
    call.refuse(0, REFUSED)
    assert call.ahead([1]) == [1]


def test_a_turn_has_the_first_of_each_key_and_an_empty_key_is_one() -> None:
    call = Admission([frame("a"), frame(""), frame("a"), frame(), frame(""), frame()], {"t"}, 10)
    assert call.turn(range(6)) == [0, 1, 3, 5]
    assert call.turn([2, 4]) == [2, 4]
