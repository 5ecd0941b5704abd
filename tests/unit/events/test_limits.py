from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posthouse.errors import DecodeError
from posthouse.events import HARD_LIMIT, PUBLISH_LIMIT, guard
from posthouse.events.limits import MAX_INTEGER, UNREADABLE

from .strategies import json_values

HARMLESS = [
    b"{}",
    b"[]",
    b"0",
    b"null",
    b'""',
    b' {"a" : [1, 2.50, -0, 1e5, true]}\n',
    b'{"a":{"id":1},"b":{"id":1},"id":2}',
    b'[{"a":1},{"a":2}]',
    b'{"ab":1,"a b":2}',
    '{"name":"ملمستون","emoji":"😀"}'.encode(),
    b'{"name":"\\u0645\\ud83d\\ude00"}',
    b'{"path":"C:\\\\u0000\\\\ud800"}',
    b'{"quote":"\\"a\\":1,\\"a\\":2"}',
    b'{"quote":"\\u0022a\\u0022\\u003a"}',
    b'{"text":"[[[[{{{{,,,,"}',
    b"[" * 64 + b"]" * 64,
    b"[" * 63 + b'{"a":1}' + b"]" * 63,
    b'{"a":' * 64 + b"1" + b"}" * 64,
    str(MAX_INTEGER).encode(),
    str(-MAX_INTEGER).encode(),
    b'{"digits":"99999999999999999999999"}',
    b"[" + b",".join([b"1"] * 99_999) + b"]",
    b"[" + b",".join([b"[]"] * 99_999) + b"]",
    b"1.7976931348623157e308",
    b'"' + b"x" * 300_000 + b'"',
]

HOSTILE = [
    ("bom", b'\xef\xbb\xbf{"a":1}'),
    ("utf8", b'{"a":"\xff"}'),
    ("utf8", b'{"a":"\xc3"}'),
    ("utf8", b'{"a":"\xc0\xaf"}'),
    ("utf8", b'{"a":"\xed\xa0\x80"}'),
    ("utf8", b'{"\xf5":1}'),
    ("nul", b'{"a":"\x00"}'),
    ("nul", b'{"a":"\\u0000"}'),
    ("nul", b'{"a":"\\\\\\u0000"}'),
    ("nul", b'{"\\u0000":1}'),
    ("surrogate", b'{"a":"\\ud800"}'),
    ("surrogate", b'{"a":"\\uDFFF"}'),
    ("surrogate", b'{"a":"\\ude00\\ud83d"}'),
    ("surrogate", b'{"a":"\\ud83d\\\\\\ude00"}'),
    ("surrogate", b'{"a":"\\ud83dx\\ude00"}'),
    ("depth", b"[" * 65 + b"]" * 65),
    ("depth", b'{"a":' * 65 + b"1" + b"}" * 65),
    ("depth", b'{"a":[' * 33 + b"]}" * 33),
    ("depth", b"[" * 100_000 + b"]" * 100_000),
    ("depth", b"[" * 50_000),
    ("depth", b'{"a":' * 40_000),
    ("depth", b'[{"":' * 20_000),
    ("nodes", b"[" + b",".join([b"1"] * 100_000) + b"]"),
    ("nodes", b"[" + b",".join([b"[]"] * 100_000) + b"]"),
    ("nodes", b'["' + b'","' * 250_000 + b'"]'),
    ("nodes", b"[" * 200_000 + b"]" * 200_000),
    ("duplicate_key", b'{"a":1,"a":2}'),
    ("duplicate_key", b'{"a":1,"a":1}'),
    ("duplicate_key", b'{"a" :1, "a":2}'),
    ("duplicate_key", b'{"x":[{"b":{"a":1,"a":1}}]}'),
    ("duplicate_key", b'{"a":1,"\\u0061":2}'),
    ("duplicate_key", b'{"a":1,"a":2,"q":"\\u0022:"}'),
    ("duplicate_key", b'{"a":1, "b":"c", "a":1}'),
    ("duplicate_key", b'{"":1,"":1}'),
    ("number", b'{"a":NaN}'),
    ("number", b'{"a":-Infinity}'),
    ("number", b"Infinity"),
    ("number", b'{"a":1e400}'),
    ("number", b'{"a":-1e400}'),
    ("number", b'{"a":1' + b"0" * 400 + b".0}"),
    ("number", b'{"a":[1E400], "b":1}'),
    ("integer", b'{"a":9223372036854775808}'),
    ("integer", b'{"a":-9223372036854775808}'),
    ("integer", b'{"a":18446744073709551616}'),
    ("integer", b'{"a":' + b"9" * 200_000 + b"}"),
    ("json", b""),
    ("json", b"{"),
    ("json", b'{"a":1}x'),
    ("json", b"{'a':1}"),
    ("json", b'{"a":01}'),
    ("json", b'{"a":"\x1f"}'),
    ("json", b'{"a":1,}'),
    ("json", b'{"a":"\\x"}'),
    ("json", b"[}"),
    ("json", b'\\"[[[['),
]


def _short(value: object) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize("body", HARMLESS, ids=_short)
def test_harmless_json_is_read_as_the_standard_library_reads_it(body: bytes) -> None:
    assert guard(body) == json.loads(body)


@pytest.mark.parametrize(("reason", "body"), HOSTILE, ids=_short)
def test_hostile_json_is_refused_with_its_reason(reason: str, body: bytes) -> None:
    with pytest.raises(DecodeError) as refused:
        guard(body)
    assert refused.value.reason == reason
    assert len(str(refused.value)) < 250


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _refusal(body: bytes) -> str:
    try:
        guard(body)
    except DecodeError as error:
        return error.reason
    return ""


HEAVY = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "towers": (b"[" + b",".join([b"[" * 65 + b"]" * 65] * 1500) + b"]")[:PUBLISH_LIMIT],
    "many duplicates": b"{" + b",".join([b'"a":1'] * 40_000) + b"}",
    "one duplicate": b"{" + b",".join(b'"%d":1' % number for number in range(20_000)) + b',"0":1}',
    "escapes": b'["' + b"\\\\" * 120_000 + b'\\u0000"]',
    "surrogates": b'["' + b"\\ud83d\\ude00" * 20_000 + b'\\ud83d"]',
    "digits": b"[" + b"9" * 250_000 + b"]",
    "fraction": b"[1e400,0." + b"1" * 250_000 + b"]",
    "values": b"[" + b"1," * 2_000_000 + b"1]",
    "brackets": b"[" * 4_000_000,
    "quotes": b'"' * 8_000_000,
    "short strings": b'"abc' * 2_000_000,
    "backslashes": b'"' + b"\\" * 1_000_001 + b'"',
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY)
def test_hostile_input_costs_little_time_and_memory(body: bytes) -> None:
    assert len(body) <= HARD_LIMIT
    seconds = []
    for _ in range(5):
        start = time.process_time()
        assert _refusal(body)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05
    assert _peak(lambda: _refusal(body)) < 64 * 1024 * 1024


def test_bytes_above_the_limit_are_not_looked_at() -> None:
    assert guard(b"[1]", limit=3) == [1]
    with pytest.raises(DecodeError) as refused:
        guard(b"[1] ", limit=3)
    assert refused.value.reason == "too_large"


@settings(deadline=None)
@given(json_values, st.sampled_from([None, 1]), st.booleans())
def test_every_way_of_writing_a_value_is_read_alike(value: object, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    assert guard(text) == value
    assert guard(msgspec.json.encode(value)) == value


texts = st.text(st.sampled_from('":\\ \t/u0022003aax,{}'), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(texts, texts | st.integers()), max_size=5),
    st.sampled_from([",", ", "]),
    st.sampled_from([":", " :", "\t: "]),
)
@example([("a", "x"), ("a", '":')], ",", ":")
def test_a_repeated_name_never_slips_through(members: list[tuple[str, str | int]], comma: str, colon: str) -> None:
    text = "{" + comma.join(f"{json.dumps(name)}{colon}{json.dumps(value)}" for name, value in members) + "}"
    names = [name for name, _ in members]
    assert (_refusal(text.encode()) == "duplicate_key") == (len(set(names)) < len(names)) or any(
        isinstance(value, int) and abs(value) > MAX_INTEGER for _, value in members
    )


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_at_all_give_a_value_or_a_reason(body: bytes) -> None:
    assert _refusal(body) in {"", "bom", "utf8", "nul", "surrogate", "json", "number", "integer", "duplicate_key"}


@pytest.mark.parametrize("body", [b"{", b'"\xff"', b'{"a\xff":1}', b"[" * 100_000, b"1e999999", b"\xef\xbb\xbf{}"])
def test_whatever_bytes_come_msgspec_says_one_of_the_errors_that_are_expected(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(body)
