from posthouse.broker import ACCEPTED, Frame
from posthouse.brokers.admission import admit, frame_size


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
