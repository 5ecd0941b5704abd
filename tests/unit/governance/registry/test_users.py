"""Users of a registry: a file of hashed secrets."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.registry.users import (
    Role,
    User,
    drop_user,
    hashed,
    keep_user,
    new_token,
    owner_of,
    read_users,
    role_named,
    verified,
)

ANNA = User("anna", Role.WRITE, hashed("correct horse"))


def test_a_secret_is_verified_and_cannot_be_read() -> None:
    kept = hashed("correct horse")
    assert "correct" not in kept
    assert verified("correct horse", kept)
    assert not verified("correct horsf", kept)
    assert not verified("", kept)
    assert hashed("correct horse") != kept


def test_a_secret_of_any_length_is_only_itself() -> None:
    long = "x" * 1_000
    assert verified(long, hashed(long))
    assert not verified(long + "y", hashed(long))


def test_users_are_kept_and_replaced_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "users"
    keep_user(file, ANNA)
    keep_user(file, User("bert", Role.READ, ANNA.secret))
    keep_user(file, User("anna", Role.ADMIN, ANNA.secret))
    assert {name: user.role for name, user in read_users(file).items()} == {"anna": Role.ADMIN, "bert": Role.READ}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["users"]
    drop_user(file, "anna")
    assert list(read_users(file)) == ["bert"]
    with pytest.raises(ConfigurationError, match="Did you mean 'bert'"):
        drop_user(file, "berta")


def test_every_wrong_line_is_named_and_no_secret_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "users"
    good = ANNA.secret
    weak = good.replace("scrypt$16384", "scrypt$16383")
    lines = [
        "# a comment",
        "",
        f"anna:write:{good}",
        "bert:write:plaintextsecret",
        f"carl:king:{good}",
        "dora",
        f"anna:read:{good}",
        f"a b:read:{good}",
        f"emil:read:{weak}",
        f"fred:read:{good.replace('scrypt$16384', 'scrypt$16777216')}",
        f"gert:read:{good[:-20]}",
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigurationError) as refused:
        read_users(file)
    assert [int(problem.split("line ")[1].split(":")[0]) for problem in refused.value.problems] == [
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
    ]
    assert "plaintextsecret" not in str(refused.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_users(tmp_path / "nobody")


def test_a_token_says_whose_it_is_and_is_never_the_same() -> None:
    token = new_token("Anna@shop.example")
    assert owner_of(token) == "Anna@shop.example"
    assert new_token("Anna@shop.example") != token
    for other in ("", "phr.x", "abc.def.ghi", "phr.!!.x", token.replace("phr", "abc")):
        assert owner_of(other) is None


def test_roles_are_known_by_name() -> None:
    assert role_named("Admin") is Role.ADMIN
    with pytest.raises(ConfigurationError, match="Did you mean 'write'"):
        role_named("wrte")
