"""Every alert in the hands of promtool: one case in which it fires and one in which it just does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.watch.alerts import Alert, alerts, case_file, rule_file
from tests.kit.servers.prometheus import promtool

OF_D = {"outbox_lag_high", "dlq_depth_growing", "consumer_error_rate", "saga_partial_rate"}


def tried(folder: Path, found: list[Alert]) -> str:
    (folder / "rules.yaml").write_text(rule_file(found, "runbooks"))
    (folder / "cases.yaml").write_text(case_file(found, "rules.yaml"))
    looked = promtool("check", "rules", "rules.yaml", cwd=folder)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert f"{len(found)} rules found" in looked.stdout
    run = promtool("test", "rules", "cases.yaml", cwd=folder)
    return run.stdout + run.stderr


@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_each_alert_fires_when_it_should_and_not_when_it_just_should_not(tmp_path: Path, scale: float) -> None:
    said = tried(tmp_path, list(alerts(time_scale=scale)))
    print(said)
    assert "SUCCESS" in said
    assert "FAILED" not in said


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_rules_of_a_platform_with_names_of_its_own_fire_by_these(tmp_path: Path, scale: float) -> None:
    found = [one for one in alerts(prefix="melmastoon", keep=["env"], time_scale=scale) if one.name in OF_D]
    assert len(found) == len(OF_D)
    said = tried(tmp_path, found)
    assert "SUCCESS" in said, said
    assert "FAILED" not in said, said


def test_a_rule_that_adds_up_what_two_processes_read_from_one_store_is_caught(tmp_path: Path) -> None:
    """The cases can fail: each figure of a store is said twice in them."""
    (wrong,) = [one for one in alerts() if one.name == "consumer_lag_events"]
    (tmp_path / "rules.yaml").write_text(rule_file([wrong], "runbooks").replace("max by", "sum by"))
    (tmp_path / "cases.yaml").write_text(case_file([wrong], "rules.yaml"))
    assert promtool("test", "rules", "cases.yaml", cwd=tmp_path).returncode != 0
