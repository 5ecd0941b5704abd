"""What doctor says about the keys of secret fields."""

from __future__ import annotations

from pathlib import Path

from posthouse import Secrets
from posthouse.watch.examining import key_checks


def names(secrets: Secrets | None) -> list[str]:
    return [check.name for check in key_checks(secrets) if check.judgement == "warn" and check.fix]


def test_a_master_key_in_the_folder_of_its_key_store_is_a_warning(tmp_path: Path) -> None:
    keys = f"sqlite:///{tmp_path / 'keys.db'}"
    assert names(Secrets(keys=keys, master=f"file:{tmp_path / 'master.key'}")) == ["master key"]
    assert names(Secrets(keys=keys, master=f"file:{tmp_path / 'apart' / 'master.key'}")) == []
    assert names(Secrets(keys=keys, master="env:MASTER")) == []


def test_keys_in_the_database_of_a_service_are_a_warning() -> None:
    keys = "postgresql://user@host/shop"
    assert names(Secrets(keys=f"{keys}?beside_store=true", master="env:MASTER")) == ["key store"]
    assert names(Secrets(keys=keys, master="env:MASTER")) == []


def test_nothing_is_said_without_secrets() -> None:
    assert names(None) == []
