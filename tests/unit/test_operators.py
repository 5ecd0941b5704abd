"""The operators' log: who, what, why, and what is never written into it."""

from __future__ import annotations

import os
import pwd
import time

import msgspec
import pytest

from posthouse.app import App
from posthouse.clock import ManualClock
from posthouse.errors import ConfigurationError
from posthouse.operators import LARGEST, MORE, MOST_FIELDS, OperatorsLog, changes, login_name, operator_name
from posthouse.service import Service
from posthouse.store import Action, ActionFilter, Store
from posthouse.stores.sqlite import SqliteStore
from posthouse.trust.rights.identity import Person, person_of


def test_the_environment_says_who_acts_and_else_login_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTHOUSE_OPERATOR", raising=False)
    monkeypatch.setattr("posthouse.operators._login", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    assert operator_name() == "ada@desk"
    monkeypatch.setenv("POSTHOUSE_OPERATOR", "on call: eve")
    assert operator_name() == "on call: eve"


def test_a_login_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> str:
        raise KeyError(uid)

    monkeypatch.delenv("POSTHOUSE_OPERATOR", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert operator_name().partition("@")[0].isdecimal()


def test_no_variable_of_the_environment_makes_one_login_another(monkeypatch: pytest.MonkeyPatch) -> None:
    known = login_name()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "grace")
    assert login_name() == known
    assert known.partition("@")[0] == pwd.getpwuid(os.getuid()).pw_name
    assert person_of("grace").is_like("ada", known), "two names of one login are one person"
    assert Person("grace", "root@pod-1").is_like("ada", "root@pod-2"), "a machine's name is anybody's"


@pytest.mark.parametrize(
    ("before", "after", "hidden", "changed"),
    [
        (b'{"a":1,"b":2}', b'{"a":1,"b":3}', (), {"b": (2, 3)}),
        (b'{"a":1}', b'{"a":1,"b":"new"}', (), {"b": (None, "new")}),
        (b'{"a":{"b":[1,{"c":2}]}}', b'{"a":{"b":[1,{"c":3}]}}', (), {"a.b.1.c": (2, 3)}),
        (b'{"a":[]}', b'{"a":[7]}', (), {"a": ([], None), "a.0": (None, 7)}),
        (b'{"mail":"a@x.org","n":1}', b'{"mail":"b@x.org","n":2}', ("mail",), {"mail": ("…", "…"), "n": (1, 2)}),
        (b'{"p":[{"name":"A"}]}', b'{"p":[{"name":"B"}]}', ("p.*.name",), {"p.0.name": ("…", "…")}),
        (b'{"person":{"name":"A"}}', b'{"person":{"name":"B"}}', ("person",), {"person.name": ("…", "…")}),
        (
            b'{"g":{"room.12":{"mail":"A"}}}',
            b'{"g":{"room.12":{"mail":"B"}}}',
            ("g.*.mail",),
            {"g.room.12.mail": ("…", "…")},
        ),
        (b'{"g":[{"mail":"A"}]}', b'{"g":{"mail":"B"}}', ("g.mail",), {"g": ("…", "…")}),
        (b'{"g":[{"mail":"A"}]}', b'{"g":[{"mail":"B"}]}', ("g.mail",), {"g": ("…", "…")}),
        (b'{"g":"A"}', b'{"g":{"mail":"B","n":1}}', ("g.mail",), {"g": ("…", "…")}),
        (b'{"g":null}', b'{"g":{"mail":"B","n":1}}', ("g.mail",), {"g.mail": ("…", "…"), "g.n": (None, 1)}),
        (b'["A"]', b'["B"]', ("mail",), {"": ("…", "…")}),
        (b'{"a.b":1,"a":{"b":"A"}}', b'{"a.b":2,"a":{"b":"B"}}', ("a.b",), {"a.b": ("…", "…")}),
        (b"\x00\x01", b"\x00\x01\x02", (), {"bytes": (2, 3)}),
    ],
)
def test_what_was_edited_is_said_field_by_field(
    before: bytes, after: bytes, hidden: tuple[str, ...], changed: dict[str, tuple[object, object]]
) -> None:
    assert changes(before, after, hidden) == changed


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b'{"n":1}', b'{"n":true}', {"n": (1, True)}),
        (b'{"n":1}', b'{"n":1.0}', {"n": (1, 1.0)}),
        (b'{"x":1}', b'{"x":1,"note":null}', {"note": (None, None)}),
        (b'{"x":1,"note":null}', b'{"x":1}', {"note": (None, None)}),
        (b'{"l":[1]}', b'{"l":{"0":1}}', {"l": ([1], {"0": 1})}),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', {}),
    ],
)
def test_a_change_that_compares_as_equal_is_one_all_the_same(before: bytes, after: bytes, said: object) -> None:
    found = changes(before, after)
    assert msgspec.json.encode(found) == msgspec.json.encode(said)
    assert all(one == ("…", "…") for one in changes(before, after, ["*"]).values())


def nested(levels: int, inner: object) -> object:
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("before", "after", "hidden"),
    [
        ({"k" * 59_000: [0] * 12_000}, {"k" * 59_000: [1] * 12_000}, ()),
        (nested(400, [0] * 30_000), nested(400, [1] * 30_000), ()),
        (nested(400, [0] * 30_000), nested(400, [1] * 30_000), (".".join("*" * 300),)),
        ([0] * 59_000, [1] * 59_000, ()),
    ],
)
def test_what_differs_in_very_many_places_is_told_of_in_some_of_them(
    before: object, after: object, hidden: tuple[str, ...]
) -> None:
    """Three of these kept the loop of a console busy for 9 seconds and more; what is told stays small."""
    began = time.process_time()
    found = changes(msgspec.json.encode(before), msgspec.json.encode(after), hidden)
    assert time.process_time() - began < 3.0
    assert len(found) <= MOST_FIELDS + 1
    assert found[MORE][1] in {"11,800 more", "29,800 more", "58,800 more"}
    assert len(msgspec.json.encode(found)) < 200_000


def test_documents_that_are_too_large_to_compare_have_a_length() -> None:
    large = b'"%s"' % (b"x" * LARGEST)
    assert changes(large, b"1") == {"bytes": (len(large), 1)}
    assert changes(large, large) == {}


@pytest.fixture
def store() -> Store:
    return SqliteStore(":memory:", clock=ManualClock())


async def test_secrets_are_hidden_and_long_texts_cut(store: Store) -> None:
    await store.upgrade()
    log = OperatorsLog(store, "orders")
    action = Action(
        verb="held edit",
        by="ada",
        why="password=hunter2 was wrong",
        changed={"url": ("postgres://u:hunter2@h/d", "x" * 1000), "api_key": ("hunter2", "hunter3"), "n": (1, 2)},
    )
    async with store.begin() as tx:
        await log.note(tx, action)
    (found,) = await log.find()
    assert "hunter" not in repr(found)
    assert (found.service, found.changed["n"], found.changed["api_key"]) == ("orders", (1, 2), ("…", "…"))
    assert len(str(found.changed["url"][1])) == 201
    await store.aclose()


async def test_an_act_elsewhere_is_noted_before_it_begins_and_how_it_ended(store: Store) -> None:
    await store.upgrade()
    log = OperatorsLog(store)

    async def seek(error: Exception | None = None) -> None:
        async with log.doing(Action(verb="seek", by="ada")) as act:
            (begun, *_) = await log.find()
            assert begun.outcome == "begun"
            act.changed, act.count = {"unread": (0, 9)}, 2
            if error is not None:
                raise error

    await seek()
    (done,) = await log.find()
    assert (done.outcome, done.changed, done.count) == ("done", {"unread": (0, 9)}, 2)
    with pytest.raises(ConfigurationError, match="no such place"):
        await seek(ConfigurationError("no such place"))
    with pytest.raises(ValueError, match="Ada"):
        await seek(ValueError("no room for Ada"))
    outcomes = sorted(action.outcome for action in await log.find())
    assert outcomes == ["done", "failed: ValueError", "failed: no such place"], "what others say may be about a person"
    await store.aclose()


async def test_a_running_app_forgets_what_is_older_than_its_retention() -> None:
    clock = ManualClock()
    app = App(Service("orders"), store="sqlite://", broker="memory://", clock=clock)
    runtime = await app.opened.prepare("poll")
    async with app.store.begin() as tx:
        await app.actions.note(tx, Action(verb="held skip"))
    clock.advance(364 * 86_400.0)
    await runtime.tidy()
    assert len(await app.actions.find(ActionFilter(verb="held"))) == 1
    clock.advance(2 * 86_400.0)
    await runtime.tidy()
    assert await app.actions.find() == []
    await app.aclose()
