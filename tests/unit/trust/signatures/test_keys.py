"""The public file: what it may say, how keys stand by their dates, and a process that reads it again."""

from __future__ import annotations

import base64
import logging
import os
import resource
from pathlib import Path

import msgspec
import pytest

from posthouse.clock import ManualClock
from posthouse.errors import ConfigurationError
from posthouse.trust.signatures.halves import Halves, lacking
from posthouse.trust.signatures.keyring import LOOK, Keyring
from posthouse.trust.signatures.keys import Key, private_in, read_keys, read_private, write_keys
from tests.kit.signing import Keys

PUBLIC = bytes(range(32))
SAID = base64.b64encode(PUBLIC).decode()
DAY = 86_400.0


def key(**terms: object) -> Key:
    return Key(id="k", public=PUBLIC, source="/shop", **terms)  # type: ignore[arg-type]


def test_keys_come_back_as_they_were_written(tmp_path: Path) -> None:
    keys = [
        Key(id="a.1", public=PUBLIC, source="/shop", since=1_700_000_000.0),
        Key(
            id='odd "one"', public=PUBLIC, source="/shop/ключ", topics=("shop.*",), tenants=("t1", "t2"), use="edits",
            since=1_700_000_000.25, retired=1_800_000_000.0, until=1_900_000_000.0, revoked=2_000_000_000.0,
        ),
    ]  # fmt: skip
    write_keys(tmp_path / "keys.toml", keys)
    assert list(read_keys(tmp_path / "keys.toml").values()) == keys


def test_a_key_stands_by_its_dates() -> None:
    terms = key(since=10.0, retired=20.0, until=30.0, revoked=40.0)
    assert [terms.state(at) for at in (0.0, 10.0, 20.0, 30.0, 40.0)] == [
        "next",
        "active",
        "retired",
        "retired",
        "revoked",
    ]


def test_what_it_signed_stands_by_the_moment_of_its_arrival() -> None:
    assert key(since=10.0).refuses(0.0) == "", "readers know the next key before it signs, and clocks differ"
    assert key(retired=20.0).refuses(30.0) == "", "what a retired key signed is good for ever"
    assert key(retired=20.0, until=25.0).refuses(24.9) == ""
    assert "out of use" in key(retired=20.0, until=25.0).refuses(25.0)
    assert key(revoked=20.0).refuses(19.9) == ""
    assert "revoked" in key(revoked=20.0).refuses(20.0)


@pytest.mark.parametrize(
    ("source", "topic", "tenant", "fits"),
    [
        ("/shop", "shop.order", "t1", True),
        ("/shop", "shop.order.dlq", "t1", True),
        ("/bank", "shop.order", "t1", False),
        ("/shop/x", "shop.order", "t1", False),
        ("/shop", "bank.order", "t1", False),
        ("/shop", "shop.order", "t2", False),
    ],
)
def test_a_key_is_bound_to_its_source_its_topics_and_its_tenants(
    source: str, topic: str, tenant: str, fits: bool
) -> None:
    assert key(topics=("shop.*",), tenants=("t1",)).signs_for(source, topic, tenant) is fits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("keys = 7", "keys is no table"),
        ("[key.a]", "Did you mean 'keys'"),
        ("[keys.a]\nsource = '/s'", "public is not the base64 text of 32 bytes"),
        (f"[keys.a]\npublic = '{SAID}'", "source"),
        (f"[keys.a]\npublic = '{SAID}'\nsource = '/s'\nretird = 2026-11-18T12:00:00Z", "Did you mean 'retired'"),
        (f"[keys.a]\npublic = '{SAID}'\nsource = '/s'\nrevoked = 2026-11-18T12:00:00", "a moment with its zone"),
        (f"[keys.a]\npublic = '{SAID}'\nsource = '/s'\nuse = 'all'", "Invalid enum value"),
        ("[keys", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong_with_it(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_keys(path)
    assert said in str(error.value)


def test_a_file_that_is_not_there_says_who_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="posthouse keys new"):
        read_keys(tmp_path / "none.toml")


def test_private_halves_are_lines_of_a_file_or_one_text(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_text(f"# ours\n\na:{SAID}\n b : {SAID} \n")
    assert read_private(path) == {"a": PUBLIC, "b": PUBLIC}
    assert private_in(f"a:{SAID},b:{SAID}", "here") == {"a": PUBLIC, "b": PUBLIC}


def test_an_error_about_a_private_half_does_not_say_it() -> None:
    with pytest.raises(ConfigurationError) as error:
        private_in("a:hunter2", "POSTHOUSE_SIGNING_PRIVATE")
    assert "line 1" in str(error.value)
    assert "hunter2" not in repr(error.value)
    assert error.value.__cause__ is None


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def ring(keys: Keys, clock: ManualClock, *ids: str) -> Keyring:
    return Keyring(keys.file, keys.signing(*ids).halves(), clock)


def test_the_newest_active_key_signs(keys: Keys) -> None:
    clock = ManualClock()
    now = clock.now()
    for id, since in (("old", now - DAY), ("new", now - 1), ("next", now + DAY)):
        keys.make(id, since=since)
    keys.make("theirs", source="/bank")
    here = ring(keys, clock, "old", "new", "next", "theirs")
    found = here.signer("/shop", "shop.order", "t1")
    assert found is not None
    assert found[0].id == "new"
    clock.advance(2 * DAY)
    found = here.signer("/shop", "shop.order", "t1")
    assert found is not None
    assert found[0].id == "next", "its time has come, and nothing was restarted"
    assert ring(keys, clock, "theirs").signer("/shop", "shop.order", "t1") is None


def test_a_change_of_the_file_is_seen_soon_and_a_key_that_is_not_known_at_once(keys: Keys) -> None:
    clock = ManualClock()
    first = keys.make("a")
    here = ring(keys, clock)
    keys.change(msgspec.structs.replace(first, revoked=1.0))
    assert "a" in here.keys
    clock.advance(LOOK)
    assert here.keys["a"].revoked == 1.0
    keys.make("b")
    assert "b" not in here.keys, "it is not looked at for each key"
    assert here.get("b") is not None


def test_a_flood_of_keys_that_are_not_known_reads_nothing(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.make("a")
    here = ring(keys, ManualClock())
    read: list[Path] = []
    monkeypatch.setattr("posthouse.trust.signatures.keyring.read_keys", read.append)
    assert [here.get(f"unknown-{number}") for number in range(1_000)] == [None] * 1_000
    assert read == []


def test_a_file_that_breaks_leaves_what_was_known_and_is_complained_about_once(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    keys.make("a")
    here = ring(keys, clock)
    good = keys.file.read_text()
    keys.file.write_text("[keys")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.advance(LOOK)
            assert "a" in here.keys
    assert caplog.text.count("the keys that were known stay in force") == 1
    os.remove(keys.file)
    clock.advance(LOOK)
    assert "a" in here.keys
    keys.file.write_text(good)
    keys.make("b")
    clock.advance(LOOK)
    assert "b" in here.keys


def test_a_revocation_that_could_not_be_read_at_first_is_read_later(keys: Keys) -> None:
    clock = ManualClock()
    first = keys.make("a")
    here = ring(keys, clock)
    keys.change(msgspec.structs.replace(first, revoked=1.0))
    clock.advance(LOOK)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))  # as in a process that has no file left to open
    try:
        assert here.keys["a"].revoked is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    clock.advance(LOOK)
    assert here.keys["a"].revoked == 1.0


def test_a_private_half_of_another_key_is_refused(keys: Keys) -> None:
    keys.make("a")
    keys.make("b")
    with pytest.raises(ConfigurationError, match="not that of the public one"):
        Keyring(
            keys.file,
            Halves(text=f"a:{base64.b64encode(keys.secrets['b'].private_bytes_raw()).decode()}"),
            ManualClock(),
        )


# Private halves that come while a process runs.


def half(keys: Keys, id: str) -> str:
    return f"{id}:{base64.b64encode(keys.secrets[id].private_bytes_raw()).decode()}\n"


def signing_now(found: Keyring) -> str:
    chosen = found.signer("/shop", "shop.order", "t1")
    return "" if chosen is None else chosen[0].id


def test_a_key_whose_private_half_comes_while_it_runs_signs_within_a_look(keys: Keys) -> None:
    clock = ManualClock(1_000.0)
    keys.make("a", since=1.0)
    found, private = ring(keys, clock, "a"), keys.file.with_name("private-a")
    keys.make("b", since=2.0)
    clock.advance(LOOK)
    assert signing_now(found) == "a", "its half is not here yet"
    private.write_text(private.read_text() + half(keys, "b"))
    clock.advance(LOOK)
    assert signing_now(found) == "b"
    keys.change(msgspec.structs.replace(read_keys(keys.file)["a"], retired=3.0))
    clock.advance(LOOK)
    assert signing_now(found) == "b", "nothing stops with the key before"


def test_a_private_file_that_is_there_by_half_takes_no_key_away(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(1_000.0)
    keys.make("a", since=1.0)
    found, private = ring(keys, clock, "a"), keys.file.with_name("private-a")
    keys.make("b", since=2.0)
    whole = private.read_text() + half(keys, "b")
    for text in ("", whole[:20], whole[:-10]):
        private.write_text(text)
        clock.advance(LOOK)
        assert signing_now(found) == "a", text
    private.unlink()
    clock.advance(LOOK)
    assert signing_now(found) == "a"
    assert "stay in force" in caplog.text
    private.write_text(whole)
    clock.advance(LOOK)
    assert signing_now(found) == "b"


def test_a_folder_holds_many_and_what_is_hidden_in_it_is_none(keys: Keys, tmp_path: Path) -> None:
    folder, clock = tmp_path / "halves", ManualClock(1_000.0)
    folder.mkdir()
    keys.make("a", since=1.0)
    (folder / "a").write_text(half(keys, "a"))
    (folder / ".writing").write_text("no key")
    found = Keyring(keys.file, Halves(folder), clock)
    assert signing_now(found) == "a"
    keys.make("b", since=2.0)
    (folder / "b").write_text(half(keys, "b"))
    clock.advance(LOOK)
    assert signing_now(found) == "b"
    keys.make("c")
    (folder / "c").write_text(half(keys, "c").replace("c:", "b:"))
    with pytest.raises(ConfigurationError, match="'b' is there twice"):
        Halves(folder).read()


def test_it_is_told_what_will_be_missing_before_it_is_missed(keys: Keys) -> None:
    def words(*ids: str) -> list[tuple[str, bool]]:
        return [
            (one.words, one.now) for one in lacking(read_keys(keys.file), dict.fromkeys(ids, b""), "/shop", 1_000.0)
        ]

    assert words() == [], "no key is for it: it is not to be signed"
    keys.make("a", since=1.0)
    keys.make("next", since=1_060.0)
    keys.make("elsewhere", since=1.0, topics=("other.*",))
    assert words("a", "next") == []
    assert words("a") == [("next signs for /shop in 60 s: its private half is not here", False)]
    keys.make("b", since=2.0)
    assert words("a", "next") == [("b signs for /shop by now, and its private half is not here", False)]
    assert words("next") == [("nothing of /shop can be signed: the private half of b is not here", True)]
    for id in ("a", "b"):
        keys.change(msgspec.structs.replace(read_keys(keys.file)[id], retired=3.0))
    assert [now for _, now in words("a", "b", "next")] == [True], "none is active"
