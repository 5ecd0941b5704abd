"""Roles: the rules of a file, and who is what by them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from posthouse.console.access.roles import RolesFile, read_rules
from posthouse.console.access.who import Who
from posthouse.errors import ConfigurationError

NOW = 1_800_000_000.0

RULES = """
[[rule]]
people = ["ana@example.com"]
roles = ["operator", "replayer"]
payloads = true
minutes = 60

[[rule]]
subs = ["zoe"]
roles = ["admin"]
until = 2027-01-15T08:00:00Z

[[rule]]
groups = ["acme-support"]
roles = ["operator"]
tenants = ["acme"]
payloads = true

[[rule]]
groups = ["staff"]
roles = ["reader"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "roles.toml"
    path.write_text(RULES)
    return path


def test_the_first_rule_that_fits_decides_alone(file: Path) -> None:
    rules = read_rules(file)

    both = rules.who({"sub": "ben", "groups": ["staff", "acme-support"]}, NOW, NOW)

    assert both == Who(name="ben", roles=frozenset(("operator",)), tenants=frozenset(("acme",)), payloads=True)
    assert both.sees("acme")
    assert not both.sees("globex")
    only = rules.who({"sub": "ben", "groups": "staff"}, NOW, NOW)
    assert only == Who(name="ben", roles=frozenset(("reader",)))


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": "ben"},
        {"sub": "ben", "groups": ["Staff"]},
        {"sub": "ben", "groups": "staff acme-support"},
        {"sub": "ben", "groups": {"staff": True}},
        {"sub": "ben", "groups": [["staff"], None, 7]},
        {"sub": "ben", "preferred_username": "zoe", "name": "zoe"},
        {"sub": "ben", "email": "ana@example.com", "email_verified": False},
        {"sub": "ben", "email": "ana@example.com", "email_verified": None},
        {"sub": "ben", "email": "ana@example.com"},
        {"sub": "ben", "email": "ana@example.com", "email_verified": 1},
        {"sub": "ben", "email": "ana@example.com", "email_verified": ["true"]},
        {"sub": "ana@example.com"},
        {"sub": "ana@example.com", "email": "mallory@evil.example", "email_verified": True},
        {"sub": "ben", "email": "zoe", "email_verified": True},
        {"sub": "ben", "email": "ANA@EXAMPLE.COM", "email_verified": True},
        {"sub": "x\nWARNING somebody else did it", "groups": ["staff"]},
    ],
)
def test_who_fits_no_rule_is_nobody(file: Path, claims: dict[str, object]) -> None:
    assert read_rules(file).who(claims, NOW, NOW) is None


def test_an_address_that_nobody_verified_is_not_the_name_in_the_log(file: Path) -> None:
    who = read_rules(file).who({"sub": "ben", "email": "ana@example.com", "groups": ["staff"]}, NOW, NOW)

    assert who == Who(name="ben", roles=frozenset(("reader",)))


def test_a_sub_that_looks_like_an_address_is_no_address_in_the_log_either(file: Path) -> None:
    who = read_rules(file).who({"sub": "ana@example.com", "groups": ["staff"]}, NOW, NOW)

    assert who == Who(name="sub:ana@example.com", roles=frozenset(("reader",)))


def test_a_replayer_is_one_for_so_many_minutes_after_the_sign_in(file: Path) -> None:
    rules, ana = read_rules(file), {"sub": "1", "email": "ana@example.com", "email_verified": True, "groups": ["staff"]}

    first = rules.who(ana, NOW, NOW + 3_599)
    after = rules.who(ana, NOW, NOW + 3_600)

    assert first is not None
    assert first.may("replayer")
    assert first.until == NOW + 3_600
    assert after == Who(name="ana@example.com", roles=frozenset(("reader",)))


def test_a_rule_that_is_over_gives_nothing(file: Path) -> None:
    rules = read_rules(file)
    end = 1_800_000_000.0

    assert rules.who({"sub": "zoe"}, NOW, end - 1) is not None
    assert rules.who({"sub": "zoe"}, NOW, end) is None


def test_a_file_that_changed_counts_at_once_and_a_broken_one_leaves_the_last_rules(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    roles, staff = RolesFile(file), {"sub": "ben", "groups": ["staff"]}
    assert roles.who(staff, NOW, NOW)

    file.write_text(RULES.replace("staff", "nobody"))
    assert roles.who(staff, NOW, NOW) is None
    assert roles.who({"sub": "ben", "groups": ["nobody"]}, NOW, NOW)

    with caplog.at_level(logging.ERROR):
        file.write_text("[[rule")
        assert roles.who({"sub": "ben", "groups": ["nobody"]}, NOW, NOW)
        os.unlink(file)
        assert roles.who({"sub": "ben", "groups": ["nobody"]}, NOW, NOW)
    assert "the roles are as they were before" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[rule]]\ngroups = ["a"]\nroles = ["oprator"]', "Did you mean 'operator'?"),
        ('[[rule]]\ngroup = ["a"]\nroles = ["reader"]', "Did you mean 'groups'?"),
        ('[[rule]]\nroles = ["reader"]', "rule 1 fits nobody"),
        ('[[rule]]\ngroups = ["a"]\nroles = []', "rule 1 gives no role"),
        ('[[rule]]\ngroups = ["a"]\nroles = ["reader"]\ntenants = []', "rule 1 shows no tenant"),
        ('[[rule]]\ngroups = ["a"]\nroles = ["reader"]\nuntil = 2026-11-17T18:00:00', "without a zone"),
        ('[[rule]]\ngroups = ["a"]\nroles = ["reader"]\nminutes = 0', "minutes is above 0"),
        ('[[rule]]\npeople = ["zoe"]\nroles = ["reader"]', "say subs = ['zoe']"),
        ('[[rule]]\nsubs = [""]\nroles = ["reader"]', "an empty text in subs"),
        ("rule = 5", "Expected `array`"),
        ("", "missing required field `rule`"),
        ("[[rule", "this is no TOML"),
    ],
)
def test_a_file_that_cannot_work_is_refused_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError) as refused:
        read_rules(path)

    assert said in str(refused.value)
    assert "roles.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        RolesFile(Path("nowhere.toml"))
