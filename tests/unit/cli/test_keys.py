"""`posthouse keys`: each verb, what it prints for programs, and what it says to wrong input."""

from __future__ import annotations

import stat
from typing import Any

import pytest

from posthouse.trust.signatures.keys import read_keys, read_private
from tests.unit.cli.conftest import Project

FILES = ("--file", "keys.toml")
HALF = ("--private", "private")


@pytest.fixture
def made(project: Project) -> Project:
    """With a key for the facts of the service."""
    ran = project.run("keys", "new", "o1", "--source", "/shop/orders", "--topic", "shop.orders.*", *FILES, *HALF)
    assert ran.exit_code == 0, ran.output
    return project


def listed(project: Project) -> dict[str, Any]:
    found: Any = project.json("keys", "list", *FILES)
    return {key["id"]: key for key in found}


def test_a_new_key_is_in_both_files_and_its_private_half_is_for_its_owner_alone(made: Project) -> None:
    key = read_keys(made.folder / "keys.toml")["o1"]
    private = made.folder / "private"
    assert (key.source, key.topics, key.tenants, key.use) == ("/shop/orders", ("shop.orders.*",), ("*",), "facts")
    assert list(read_private(private)) == ["o1"]
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    half = private.read_text().partition(":")[2].strip()
    assert half not in (made.folder / "keys.toml").read_text()


def test_a_second_key_leaves_the_first_where_it_is(made: Project) -> None:
    told: Any = made.json(
        "keys", "new", "o2", "--source", "/shop/orders", "--since", "2999-01-01T00:00:00Z", *FILES, *HALF
    )
    assert told["state"] == "next"
    assert {id: key["state"] for id, key in listed(made).items()} == {"o1": "active", "o2": "next"}
    assert list(read_private(made.folder / "private")) == ["o1", "o2"]


def test_a_retired_key_and_a_revoked_one_are_listed_as_such(made: Project) -> None:
    made.run("keys", "new", "o2", "--source", "/shop/orders", *FILES, *HALF)
    retired: Any = made.json("keys", "retire", "o1", "--until", "2999-01-01T00:00:00Z", *FILES)
    assert (retired["state"], retired["until"][:10]) == ("retired", "2999-01-01")
    revoked: Any = made.json("keys", "revoke", "o2", "--at", "2026-01-01T00:00:00Z", *FILES)
    assert (revoked["state"], revoked["revoked"][:10]) == ("revoked", "2026-01-01")
    assert {id: key["state"] for id, key in listed(made).items()} == {"o1": "retired", "o2": "revoked"}
    assert "revoked" in made.run("keys", "list", *FILES).output


def test_check_is_content_while_every_topic_has_a_key_that_signs_and_ends_with_1_when_one_has_none(
    made: Project,
) -> None:
    assert made.run("keys", "check", "shop:orders", *FILES, *HALF).exit_code == 0
    assert made.run("keys", "retire", "o1", "--yes", *FILES).exit_code == 0
    bad = made.run("keys", "check", "shop:orders", "--json", *FILES, *HALF)
    assert bad.exit_code == 1
    assert "shop.orders.order: no active key signs for /shop/orders" in bad.output


BOOKING = """
from tests.unit.processes.saga.hotel import reservation
"""


def test_check_names_the_topic_of_the_facts_that_sagas_say_to_themselves(project: Project) -> None:
    project.write("stay.py", BOOKING)
    topics = ("--topic", "hotel.reservation.booking", "--topic", "hotel.reservation.refund")
    project.run("keys", "new", "r1", "--source", "/hotel/reservation", *topics, *FILES, *HALF)
    bad = project.run("keys", "check", "stay:reservation", *FILES, *HALF)
    assert bad.exit_code == 1
    assert "hotel.reservation.saga: no active key signs for /hotel/reservation" in " ".join(bad.output.split())
    whole = (*topics, "--topic", "hotel.reservation.saga")
    project.run("keys", "new", "r2", "--source", "/hotel/reservation", *whole, *FILES, *HALF)
    good = project.run("keys", "check", "stay:reservation", *FILES, *HALF)
    assert good.exit_code == 0, good.output


def test_check_names_a_private_half_that_is_nobodys(made: Project) -> None:
    private = made.folder / "private"
    private.write_text(private.read_text().replace("o1:", "o9:"))
    bad = made.run("keys", "check", *FILES, *HALF)
    assert bad.exit_code == 1
    assert "'o9' has no public half" in bad.output
    assert "o1" in bad.output, "it says which one may be meant"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "o2", "--source", "shop/orders", *HALF), "begins with a slash"),
        (("new", "o2", "--source", "/shop/orders"), "say where the private half goes"),
        (("new", "o1", "--source", "/shop/orders", *HALF), "never used again"),
        (("new", "a:b", "--source", "/shop/orders", *HALF), "no id of a key"),
        (("new", "o2", "--source", "/shop/orders", "--since", "soon", *HALF), "soon"),
        (("retire", "o11"), "Did you mean"),
        (("revoke", "nobody"), "has no key 'nobody'"),
    ],
)
def test_wrong_input_is_told_what_is_wrong_and_changes_nothing(
    made: Project, words: tuple[str, ...], said: str
) -> None:
    before = [(made.folder / name).read_text() for name in ("keys.toml", "private")]
    ran = made.run("keys", *words, *FILES)
    assert ran.exit_code == 2
    assert said in " ".join(ran.output.split())
    assert [(made.folder / name).read_text() for name in ("keys.toml", "private")] == before


def test_a_list_without_a_file_says_who_makes_one(project: Project) -> None:
    ran = project.run("keys", "list", *FILES)
    assert ran.exit_code == 2
    assert "posthouse keys new" in " ".join(ran.output.split())


def test_the_last_key_for_some_facts_is_retired_on_purpose_alone(made: Project) -> None:
    late = ("new", "o2", "--source", "/shop/orders", "--since", "2999-01-01T00:00:00Z")
    for words in (late, ("new", "o3", "--source", "/shop/orders", "--topic", "other.*")):
        made.run("keys", *words, *FILES, *HALF)
    refused = made.run("keys", "retire", "o1", *FILES)
    assert refused.exit_code == 2
    assert "no other key for facts of /shop/orders signs" in " ".join(refused.output.split())
    assert listed(made)["o1"]["state"] == "active"
    assert made.run("keys", "retire", "o1", "--at", "2999-01-02T00:00:00Z", *FILES).exit_code == 0, "o2 signs by then"
    assert made.run("keys", "retire", "o1", "--yes", *FILES).exit_code == 0


SIGNED = """
from posthouse import App, Service, Signing

orders = Service("orders", namespace="shop")
app = App(orders, signing=Signing(keys="keys.toml", private="private"))
"""


def test_check_looks_where_the_app_says_that_its_private_halves_are(made: Project) -> None:
    made.write("signed.py", SIGNED)
    assert made.json("keys", "check", "signed:app", *FILES) == {"keys": 1, "private": 1, "problems": []}
    made.run("keys", "new", "o2", "--source", "/shop/orders", "--topic", "shop.orders.*", *FILES, "--private", "other")
    bad = made.run("keys", "check", "signed:app", *FILES)
    assert bad.exit_code == 1
    assert "o2 signs for /shop/orders by now, and its private half is not here" in " ".join(bad.output.split())


def test_doctor_names_private_keys_that_everybody_may_read_and_those_that_are_missing(made: Project) -> None:
    made.write("signed.py", SIGNED)
    assert "1 of 1 keys" in made.run("doctor", "signed:app").output
    (made.folder / "private").chmod(0o644)
    assert "everybody on this machine may read the private keys in private" in " ".join(
        made.run("doctor", "signed:app", "--json").output.split()
    )
    (made.folder / "private").chmod(0o600)
    (made.folder / "private").write_text("")
    bad = made.run("doctor", "signed:app", "--json")
    assert bad.exit_code == 1
    assert "the private half of o1 is not here" in bad.output
