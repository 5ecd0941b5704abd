"""A real Prometheus scrapes real processes: alerts fire when the relay is stopped, and every panel is answered."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.kit.servers.ports import free_ports
from tests.kit.servers.prometheus import PrometheusServer, program, running
from tests.kit.shell import Shell
from tests.kit.troubled import APP, PLACED
from tests.kit.waiting import until

SCALE = 0.03
"""Five minutes are nine seconds."""
WINDOW = "10s"
"""For Grafana's `$__rate_interval`."""

NEVER_HERE = {
    "posthouse_relay_fenced_total": "no relay of one healthy process is ever overtaken",
    "posthouse_reconnects_total": "no server goes away in this test",
    "posthouse_loop_restarts_total": "no loop fails in this test",
    "posthouse_archive_waiting": "nothing is archived in this test",
    "posthouse_archive_oldest_seconds": "nothing is archived in this test",
    "posthouse_archive_events_total": "nothing is archived in this test",
    "posthouse_audit_overdue_seconds": "no audit log is written in this test",
    "posthouse_signatures_refused_total": "no signature is asked for in this test",
}
"""Figures that a healthy run does not have, each with the reason."""

AT_THE_STOP = {"outbox_lag_high", "relay_stalled", "nobody_runs", "target_down"}
ALL_ALONG = {"held_dead", "held_quarantined", "saga_dead", "saga_partial"}
ONCE = {"cross_tenant_publish_blocked", "schema_drift"}


class Watched(Shell):
    """The application on PostgreSQL, its worker, and a `posthouse watch` beside it."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.worker_port, self.watch_port = free_ports(2)
        there = APP.replace("App(orders, billing)", f"App(orders, billing, store={url!r}, broker={url!r})")
        (folder / "app.py").write_text(there, encoding="utf-8")

    @property
    def targets(self) -> dict[str, str]:
        return {
            "posthouse-worker": f"127.0.0.1:{self.worker_port}",
            "posthouse-watch": f"127.0.0.1:{self.watch_port}",
        }

    def work(self) -> subprocess.Popen[bytes]:
        return self.start("app", "--http", f"127.0.0.1:{self.worker_port}")

    def do(self, *works: str) -> None:
        for work in works:
            self.call("app.py", work)

    def begin(self, work: str) -> None:
        """In the background."""
        self.running.append(subprocess.Popen([sys.executable, "app.py", work], cwd=self.folder))


@pytest.fixture
def watched(tmp_path: Path, postgres_url: str) -> Iterator[Watched]:
    program("prometheus")
    with Watched(tmp_path, postgres_url) as made:
        made.posthouse("db", "upgrade", "app")
        thresholds = ["--set", "outbox_lag_seconds=2", "--set", "timers_seconds=3600"]
        made.posthouse("export", "alerts", "--out", "rules.yaml", "--time-scale", str(SCALE), *thresholds)
        made.posthouse("export", "dashboards", "--out", "dashboards")
        yield made


def queries(folder: Path) -> Iterator[tuple[str, str]]:
    """Every panel's, as Grafana sends it when all services are chosen."""
    for file in sorted((folder / "dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                expr = re.sub(r"\$(service|consumer)\b", ".*", target["expr"])
                yield f"{file.stem}: {panel['title']}", expr.replace("$__rate_interval", WINDOW)


def unanswered(server: PrometheusServer, asked: list[tuple[str, str]]) -> list[str]:
    """Panels without a number."""
    return [
        f"{place}: {expr}"
        for place, expr in asked
        if not any(math.isfinite(float(line["value"][1])) for line in server.query(expr))
    ]


def fired(server: PrometheusServer) -> set[str]:
    """What has fired at all."""
    return {one["metric"]["alertname"] for one in server.query('max_over_time(ALERTS{alertstate="firing"}[10m])')}


def reached(look: Callable[[], set[str]], wanted: set[str]) -> None:
    """Wait until all of these are there; or say which are not."""
    try:
        until(lambda: look() >= wanted, "these alerts", within=45, pause=0.5)
    except AssertionError:
        pytest.fail(f"{wanted - look()} did not fire, but {look()}")


def test_alerts_fire_and_panels_are_answered_by_what_real_processes_serve(watched: Watched) -> None:
    worker = watched.work()
    watched.start("app", "--http", f"127.0.0.1:{watched.watch_port}", verb="watch")
    with running((watched.folder / "rules.yaml").read_text(), watched.targets) as server:
        until(lambda: len(server.query("up == 1")) == 2, "two targets", within=30, pause=0.2)
        watched.begin("flow('o', 15)")
        watched.do(f"place(*{PLACED!r}, ('many', 66))", "spoil()")
        watched.posthouse("outbox", "resend", "app", "--yes", "--why", "a drill")

        asked = list(queries(watched.folder))
        rare = [one for one in asked if any(name in one[1] for name in NEVER_HERE)]
        left = [one for one in asked if one not in rare]
        assert len(rare) == len(NEVER_HERE), "each of these has one panel"
        assert len(left) > 70
        missing = left

        def answered() -> bool:
            nonlocal missing
            missing = [one for one in missing if unanswered(server, [one])]
            return not missing

        try:
            until(answered, "an answer for every panel", within=20, pause=0.5)
        except AssertionError:
            pytest.fail(f"no data for {[place for place, _ in missing]}: {missing}")

        reached(lambda: fired(server), ONCE | (ALL_ALONG - {"saga_partial"}))
        assert not set(server.firing()) & AT_THE_STOP

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        watched.do("place(('late', 100))")
        reached(lambda: set(server.firing()), AT_THE_STOP | ALL_ALONG)
        for alert in server.firing().values():
            said = " ".join(alert["annotations"].values())
            assert "no value" not in said
            assert "error" not in said.lower()
            assert alert["annotations"]["runbook_url"].startswith("runbooks/")
        assert server.firing()["outbox_lag_high"]["labels"]["service"] == "orders, billing"

        rules = server.rules()
        assert len(rules) == len(yaml.safe_load((watched.folder / "rules.yaml").read_text())["groups"][0]["rules"])
        assert [rule for rule in rules if rule["health"] != "ok"] == []

        watched.work()
        until(lambda: not set(server.firing()) & AT_THE_STOP, "an end of these alerts", within=30, pause=0.5)
        assert "events_unaccounted" not in fired(server)
        assert "nobody_watches" not in fired(server)
