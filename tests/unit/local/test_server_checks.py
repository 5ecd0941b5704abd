"""What the settings and sessions of a PostgreSQL mean, judged without one."""

from __future__ import annotations

import pytest

from posthouse.checks import Check, Judgement, refusals, warnings
from posthouse.local.file_checks import filesystem_check, version_check
from posthouse.local.postgres import sessions
from posthouse.local.postgres.pooler import Pooler, pooler_check
from posthouse.local.postgres.server import role_check, server_checks
from posthouse.stores.postgres.checks import dead_row_checks, migration_checks
from posthouse.stores.waiting import waiting_checks

SAFE = {
    "major": 17, "version": "17.4", "standby": False, "fsync": "on", "full_page_writes": "on",
    "synchronous_commit": "on", "standbys": "", "read_only": "off",
}  # fmt: skip


def judged(found: dict[str, object] | None = None, unsafe: Judgement = "fail") -> dict[str, Check]:
    return {check.name: check for check in server_checks(tuple({**SAFE, **(found or {})}.values()), unsafe)}


def test_a_sound_server_has_nothing_to_mend() -> None:
    assert {check.judgement for check in judged().values()} == {"ok"}
    assert not any(check.fix for check in judged().values())


@pytest.mark.parametrize(
    ("found", "name", "judgement"),
    [
        ({"major": 12, "version": "12.1"}, "version", "fail"),
        ({"major": 19, "version": "19beta1"}, "version", "warn"),
        ({"standby": True}, "server", "fail"),
        ({"read_only": "on"}, "server", "fail"),
        ({"fsync": "off"}, "fsync", "fail"),
        ({"full_page_writes": "off"}, "full_page_writes", "fail"),
        ({"synchronous_commit": "off"}, "synchronous_commit", "fail"),
        ({"synchronous_commit": "local"}, "synchronous_commit", "ok"),
        ({"synchronous_commit": "local", "standbys": "*"}, "synchronous_commit", "warn"),
        ({"synchronous_commit": "remote_apply", "standbys": "*"}, "synchronous_commit", "ok"),
    ],
)
def test_a_setting_that_breaks_the_promise_is_named(found: dict[str, object], name: str, judgement: str) -> None:
    checks = judged(found)
    assert checks[name].judgement == judgement
    assert bool(checks[name].fix) == (judgement != "ok")
    assert {check.judgement for other, check in checks.items() if other != name} == {"ok"}


def test_a_crash_that_forgets_can_be_accepted() -> None:
    settings = ("fsync", "full_page_writes", "synchronous_commit")
    checks = judged(dict.fromkeys(settings, "off"), "warn").values()
    assert refusals(checks) == []
    assert len(warnings(checks)) == 3


def test_a_role_is_named_with_its_powers() -> None:
    assert role_check(("orders", False, False)).found == "orders"
    assert role_check(("root", True, True)).found == "root (superuser, bypasses row-level security)"


@pytest.mark.parametrize(
    ("found", "declared", "judgement"),
    [
        ("none", "none", "ok"),
        ("none", "transaction", "ok"),
        ("session", "none", "ok"),
        ("transaction", "transaction", "ok"),
        ("transaction", "none", "fail"),
        ("transaction", "session", "fail"),
    ],
)
def test_a_pooler_that_was_not_declared_is_refused(found: Pooler, declared: Pooler, judgement: str) -> None:
    assert pooler_check(found, declared).judgement == judgement


def oldest(age: float, hidden: int = 0) -> Check:
    row = (4711, age, "idle in transaction", "report", "psql", "shop", "SELECT *\n  FROM orders")
    return sessions.oldest_check([row], hidden)


def test_an_old_transaction_is_named_with_pid_query_and_the_way_to_end_it() -> None:
    check = oldest(3600)
    assert check.judgement == "warn"
    assert check.found == (
        "pid 4711 (report/psql/shop), idle in transaction, open for 60 min: SELECT * FROM orders"
    )  # fmt: skip
    assert "SELECT pg_terminate_backend(4711)" in check.fix


def test_a_young_transaction_is_no_matter() -> None:
    assert oldest(sessions.LONG - 1).judgement == "ok"
    assert oldest(sessions.LONG).judgement == "warn"


def test_sessions_that_cannot_be_seen_are_counted() -> None:
    for check in (oldest(1, hidden=3), sessions.oldest_check([], 3)):
        assert "3 sessions of other roles cannot be seen" in check.found
        assert "pg_read_all_stats" in check.fix


def test_a_prepared_transaction_that_was_left_behind_is_named() -> None:
    (check,) = sessions.prepared_checks([("xa-1", 900.0, "orders", "shop"), ("young", 1.0, "orders", "shop")])
    assert check.judgement == "warn"
    assert "ROLLBACK PREPARED 'xa-1'" in check.fix
    assert [c.judgement for c in sessions.prepared_checks([("young", 1.0, "orders", "shop")])] == ["ok"]


@pytest.mark.parametrize(
    ("slot", "judgement"),
    [
        (("s", True, "reserved", 10 * 1024**3, 5), "ok"),
        (("s", False, "reserved", 1024, 5), "ok"),
        (("s", False, "extended", 2 * 1024**3, 5), "warn"),
        (("s", True, "lost", 0, 5), "warn"),
        (("s", True, "unreserved", 0, 5), "warn"),
        (("s", True, "reserved", 0, 20_000_000), "warn"),
    ],
)
def test_a_slot_that_keeps_too_much_can_be_dropped(slot: tuple[object, ...], judgement: str) -> None:
    (check,) = sessions.slot_checks([slot])
    assert check.judgement == judgement
    assert ("pg_drop_replication_slot('s')" in check.fix) == (judgement == "warn")


@pytest.mark.parametrize(
    ("used", "ours", "judgement"), [(10, 12, "ok"), (77, 12, "ok"), (78, 12, "warn"), (1, 97, "warn")]
)
def test_connections_that_run_out_are_told(used: int, ours: int, judgement: str) -> None:
    assert sessions.connections_check((used, 100, 3), ours, "").judgement == judgement


def test_missing_tables_keep_a_service_from_starting_and_unfinished_ones_do_not() -> None:
    assert migration_checks(["0002_b"], ["0002_b", "0002_b.post"])[0].judgement == "fail"
    (left,) = migration_checks([], ["0002_b.post"])
    assert (left.judgement, "--post" in left.fix) == ("ok", True)
    assert migration_checks([], [])[0].found == "all are applied"


@pytest.mark.parametrize(
    ("dead", "live", "judgement"), [(99_999, 0, "ok"), (100_000, 200_000, "ok"), (100_000, 10, "warn")]
)
def test_a_table_that_is_mostly_dead_rows_is_named(dead: int, live: int, judgement: str) -> None:
    (check,) = dead_row_checks([("head", dead, live)])
    assert check.judgement == judgement


def test_work_that_nobody_does_is_told() -> None:
    quiet = waiting_checks(shards=16, held=16, stuck=0, stuck_keys=0, dead=0)
    assert [check.judgement for check in quiet] == ["ok"] * 3
    busy = waiting_checks(shards=16, held=15, stuck=5, stuck_keys=2, dead=1)
    assert [check.judgement for check in busy] == ["warn"] * 3
    assert busy[1].found == "2 keys, 5 rows"


@pytest.mark.parametrize(("version", "judgement"), [((3, 34, 1), "fail"), ((3, 45, 0), "warn"), ((3, 51, 3), "ok")])
def test_an_old_sqlite_is_told(version: tuple[int, ...], judgement: str) -> None:
    assert version_check(version).judgement == judgement


@pytest.mark.parametrize(("kind", "judgement"), [("ext4", "ok"), ("", "ok"), ("nfs4", "fail"), ("fuse.sshfs", "fail")])
def test_a_network_filesystem_is_refused(kind: str, judgement: str) -> None:
    assert filesystem_check(kind).judgement == judgement
