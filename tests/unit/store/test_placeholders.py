"""`:name` with a mapping, translated to what each driver takes."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.errors import StoreError
from posthouse.store.placeholders import DOLLAR, FORMAT, PYFORMAT, QUESTION, Style, bound

STYLES = {"asyncpg": DOLLAR, "sqlite3": QUESTION, "psycopg": PYFORMAT, "pg8000": FORMAT}
every_style = pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)

INSERT = "INSERT INTO orders VALUES (:id, :cents, :id)"


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (DOLLAR, ("INSERT INTO orders VALUES ($1, $2, $1)", ["o1", 5])),
        (QUESTION, ("INSERT INTO orders VALUES (?1, ?2, ?1)", ["o1", 5])),
        (PYFORMAT, ("INSERT INTO orders VALUES (%(id)s, %(cents)s, %(id)s)", {"cents": 5, "id": "o1"})),
        (FORMAT, ("INSERT INTO orders VALUES (%s, %s, %s)", ["o1", 5, "o1"])),
    ],
    ids=STYLES,
)
def test_a_name_becomes_what_the_driver_takes(style: Style, expected: object) -> None:
    assert bound(INSERT, {"cents": 5, "id": "o1"}, style) == expected


@every_style
def test_a_sequence_is_in_the_drivers_own_style_and_stays_as_it_is(style: Style) -> None:
    assert bound("SELECT ':a' %s :b", ("x",), style) == ("SELECT ':a' %s :b", ("x",))


@every_style
@pytest.mark.parametrize(
    "text",
    [
        "':a'",
        "'it''s :a'",
        '"col :a"',
        "'12:30'::time",
        "b::text",
        "-- :a\n1",
        "/* :a */ 1",
        "$$ :a $$",
        "$x$ :a $$ :b $x$",
        "E'\\' :a'",
        "b[1:n]",
        "f(b := 1)",
        "b % 2",
    ],
)
def test_what_is_no_placeholder_stays_as_it_is(style: Style, text: str) -> None:
    written, values = bound(f"SELECT {text}, :z", {"z": 1}, style)
    assert list(values) == (["z"] if style is PYFORMAT else [1])
    assert written.replace("%%", "%").startswith(f"SELECT {text}, ")


def test_a_cast_follows_its_placeholder() -> None:
    assert bound("SELECT :a::text, (:b)::int", {"a": 1, "b": 2}, DOLLAR) == ("SELECT $1::text, ($2)::int", [1, 2])


def test_remarks_end_where_the_database_ends_them() -> None:
    text = "SELECT /* /* */ :a */ 1"
    assert bound(text, {}, DOLLAR) == (text, ())
    with pytest.raises(StoreError, match=":a has no value"):
        bound(text, {}, QUESTION)


def test_sqlite_quotes_names_in_two_more_ways() -> None:
    assert bound("SELECT `a :b`, [c :d], :e", {"e": 1}, QUESTION) == ("SELECT `a :b`, [c :d], ?1", [1])


def test_percent_signs_are_written_twice_where_they_would_mean_something() -> None:
    assert bound("SELECT 'a%' LIKE :b", {"b": 1}, PYFORMAT) == ("SELECT 'a%%' LIKE %(b)s", {"b": 1})
    assert bound("SELECT b %(c) = :d", {"d": 1}, PYFORMAT) == ("SELECT b %%(c) = %(d)s", {"d": 1})
    assert bound("SELECT 'a%'", {}, PYFORMAT) == ("SELECT 'a%'", ())


@pytest.mark.parametrize(("text", "style"), [("SELECT %(a)s", PYFORMAT), ("SELECT @a, $b", QUESTION)])
def test_a_mapping_for_the_drivers_own_names_is_the_drivers(text: str, style: Style) -> None:
    assert bound(text, {"a": 1, "c": 2}, style) == (text, {"a": 1, "c": 2})


@pytest.mark.parametrize("text", ["SELECT (a)[:n], %(b)s", "SELECT a[%(b)s :n]", "SELECT a[(1):n], %(b)s"])
def test_a_slice_is_no_name_where_the_mapping_is_for_the_drivers_own(text: str) -> None:
    assert bound(text, {"b": 1}, PYFORMAT) == (text, {"b": 1})


@pytest.mark.parametrize(
    ("text", "style"),
    [("SELECT $1", DOLLAR), ("SELECT :a, $1", DOLLAR), ("SELECT :a, ?", QUESTION), ("SELECT :a, @a", QUESTION)],
)
def test_two_styles_in_one_statement_are_refused(text: str, style: Style) -> None:
    with pytest.raises(StoreError, match="driver's own style"):
        bound(text, {"a": 1}, style)


@every_style
def test_names_that_do_not_fit_are_refused_with_a_suggestion(style: Style) -> None:
    with pytest.raises(StoreError) as refused:
        bound("UPDATE orders SET cents = :cents WHERE id = :id", {"cent": 1, "id": 2, "zzz": 3}, style)
    assert str(refused.value) == (
        ":cents has no value. Did you mean 'cent'? 'cent' is not in the statement: write it :cent, or leave it out. "
        "Did you mean 'cents'? 'zzz' is not in the statement: write it :zzz, or leave it out. Known: cents."
    )


@every_style
def test_a_value_without_a_name_is_refused_also_where_the_driver_would_pass_over_it(style: Style) -> None:
    with pytest.raises(StoreError, match="'b' is not in the statement"):
        bound("SELECT :a", {"a": 1, "b": 2}, style)


@every_style
def test_a_statement_without_names_takes_an_empty_mapping_and_no_other(style: Style) -> None:
    assert bound("SELECT 1", {}, style) == ("SELECT 1", ())
    with pytest.raises(StoreError, match="'a' is not in the statement"):
        bound("SELECT 1", {"a": 1}, style)


names = st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True).filter(str.isidentifier)
noise = st.sampled_from(
    ["':x'", "'it''s :x'", '":x"', "/* :x */ 1", "-- :x\n1", "1", "'%s %(x)s'", "'$1 ?'", "'a::b'", "'a\\'"]
)


@given(st.lists(st.one_of(names.map(lambda name: f":{name}"), noise), min_size=1, max_size=12))
def test_sqlite_reads_from_what_was_translated_what_was_meant(parts: list[str]) -> None:
    """A database is the judge: every placeholder gives its value, and all else what it gives alone."""
    given = {part[1:]: f"value of {part[1:]}" for part in parts if part.startswith(":")}
    sql, values = bound("SELECT " + "\n, ".join(parts), given, QUESTION)
    with closing(sqlite3.connect(":memory:")) as connection:
        assert not isinstance(values, dict)
        found = connection.execute(sql, tuple(values)).fetchone()
        alone = [connection.execute(f"SELECT {part}").fetchone()[0] for part in parts if not part.startswith(":")]
    rest = iter(alone)
    assert list(found) == [given[part[1:]] if part.startswith(":") else next(rest) for part in parts]


@given(st.lists(names, min_size=1, max_size=8), st.sampled_from([DOLLAR, QUESTION, PYFORMAT, FORMAT]))
def test_every_style_puts_the_same_values_in_the_same_places(wanted: list[str], style: Style) -> None:
    values = {name: number for number, name in enumerate(dict.fromkeys(wanted))}
    sql, parameters = bound(" ".join(f":{name}" for name in wanted), values, style)
    if isinstance(parameters, dict):
        read = [parameters[name] for name in re.findall(r"%\((\w+)\)s", sql)]
    elif style is FORMAT:
        read = list(parameters)
    else:
        read = [list(parameters)[int(number) - 1] for number in re.findall(r"\d+", re.sub(r"[$?](\d+)", r"\1", sql))]
    assert read == [values[name] for name in wanted]
