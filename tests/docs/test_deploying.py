"""The pages on deployment: what stands in their files is run, as a host would run it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import yaml

from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PostgresServer, binaries
from tests.kit.waiting import until

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "deploying"
PAGES = Path(__file__).parents[2] / "docs" / "deploying"
SYSTEMCTL = Path(__file__).parent / "systemctl.py"
PATIENCE = 60.0


class Host:
    """A folder with the application, and the environment in which its commands run there."""

    def __init__(self, folder: Path, url: str) -> None:
        shutil.copytree(EXAMPLE, folder)
        (folder / "bin").mkdir()
        command = folder / "bin" / "posthouse"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m posthouse "$@"\n')
        command.chmod(0o755)
        self.folder, self.url = folder, url
        self.variables = {
            **os.environ,
            "POSTHOUSE_STORE": url,
            "POSTHOUSE_BROKER": url,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }

    def call(self, command: Sequence[str], *, code: int = 0) -> str:
        """What a command printed."""
        run = subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert run.returncode == code, (command, run.stdout, run.stderr)
        return run.stdout

    @contextmanager
    def started(self, command: Sequence[str], *, stops_within: float) -> Iterator[subprocess.Popen[bytes]]:
        """Ended by SIGTERM, which it must obey in good order and in time."""
        with subprocess.Popen(command, cwd=self.folder, env=self.variables, stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.terminate()
                assert process.wait(stops_within) == 0

    def place(self, first: int, last: int) -> None:
        self.call([sys.executable, "app.py", str(first), str(last)])

    def invoices(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('invoice')").fetchone() == (None,):
                return 0
            ((count,),) = connection.execute("SELECT count(*) FROM invoice").fetchall()
            return int(count)

    def settled(self) -> Mapping[str, Any]:
        """What `status` says once everything is applied and acknowledged."""
        found: dict[str, Any] = {}

        def fine() -> bool:
            run = subprocess.run(
                ["posthouse", "status", "app:app", "--json"],
                cwd=self.folder,
                env=self.variables,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            found.update(json.loads(run.stdout), said=run.stderr)
            return run.returncode == 0

        try:
            until(fine, "a sum that adds up", within=20, pause=0.2)
        except AssertionError:
            pytest.fail(f"it does not add up: {found}")
        return found


@pytest.fixture
def host(tmp_path: Path, postgres_url: str) -> Host:
    return Host(tmp_path / "shop", postgres_url)


def on_port(words: Sequence[str], port: int) -> list[str]:
    """A command of the page, where the port that it names may be another's: on this one, and for this host alone."""
    return [re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):946(4|%i)", f"127.0.0.1:{port}", word) for word in words]


def answers(port: int, path: str) -> bool:
    """Whether the page is there, and says that all is well."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10).status_code == 200
    return False


def free_tens() -> int:
    """Ports that begin so are free, for copies that are numbered."""
    while True:
        tens = random.randrange(2_000, 3_200)
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for copy in (1, 2):
                taken.enter_context(socket.create_server(("127.0.0.1", 10 * tens + copy)))
            return tens


def exec_form(line: str) -> list[str]:
    """What a line of a Dockerfile has as a list."""
    return [str(word) for word in json.loads(line.partition(" ")[2])]


def test_the_unit_runs_the_application_and_ends_it_in_good_order(host: Host) -> None:
    unit = (EXAMPLE / "shop@.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    given = dict(line.split("=", 1) for line in (EXAMPLE / "shop.env").read_text().splitlines() if "=" in line)
    assert set(given) == {"POSTHOUSE_STORE", "POSTHOUSE_BROKER", "POSTHOUSE_COMMIT"}
    port = free_port()
    command = on_port(shlex.split(settings["ExecStart"].replace("/srv/shop/.venv/bin/", "")), port)
    assert f"127.0.0.1:{port}" in command
    host.call(["posthouse", "db", "upgrade", "app:app"])
    with host.started(command, stops_within=float(settings["TimeoutStopSec"])):
        until(lambda: answers(port, "/readyz"), "readiness", within=PATIENCE, pause=0.1)
        host.place(0, 20)
        until(lambda: host.invoices() == 20, "twenty invoices", within=PATIENCE)
    host.settled()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_understands_the_unit(host: Host) -> None:
    unit = host.folder / "shop@.service"
    unit.write_text(unit.read_text().replace("/srv/shop/.venv/bin/posthouse", str(host.folder / "bin" / "posthouse")))
    run = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert unit.name not in run.stderr, run.stderr


def test_a_unit_that_starts_before_the_migration_is_refused_with_the_command_that_helps(host: Host) -> None:
    run = subprocess.run(
        ["posthouse", "run", "app:app"],
        cwd=host.folder,
        env=host.variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode != 0
    assert "posthouse db upgrade" in run.stderr


def test_compose_and_kubernetes_run_the_image_as_they_should(host: Host) -> None:
    lines = (EXAMPLE / "Dockerfile").read_text().splitlines()
    (entry,) = [exec_form(line) for line in lines if line.startswith("ENTRYPOINT")]
    (default,) = [exec_form(line) for line in lines if line.startswith("CMD")]
    assert (EXAMPLE / "requirements.txt").read_text() == f"posthouse[postgres]=={version('posthouse')}\n"
    services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    job, deployment, watching, service = yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text())
    (scaled,) = yaml.safe_load_all((EXAMPLE / "keda.yaml").read_text())
    (migrate,) = job["spec"]["template"]["spec"]["containers"]
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]
    assert migrate["args"] == services["migrate"]["command"]
    assert worker["args"] == services["worker"]["command"] == default
    (watch,) = watching["spec"]["template"]["spec"]["containers"]
    assert watch["args"] == services["watch"]["command"]
    assert services["worker"]["stop_grace_period"] == "30s"
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    host.call([*entry, *migrate["args"]])
    ports = one, two, three = free_port(), free_port(), free_port()
    with (
        host.started([*entry, *on_port(worker["args"], one)], stops_within=grace),
        host.started([*entry, *on_port(default, two)], stops_within=grace),
        host.started([*entry, *on_port(watch["args"], three)], stops_within=grace),
    ):
        for port in ports:
            for probe in (worker["livenessProbe"], worker["readinessProbe"], watch["livenessProbe"]):
                path = probe["httpGet"]["path"]
                until(lambda port=port, path=path: answers(port, path), path, within=PATIENCE, pause=0.1)  # type: ignore[misc]
        host.call(on_port([sys.executable, *services["worker"]["healthcheck"]["test"][2:]], two))
        host.place(0, 20)
        until(lambda: host.invoices() == 20, "twenty invoices", within=PATIENCE)
        (trigger,) = scaled["spec"]["triggers"]
        asked = urlsplit(trigger["metadata"]["url"])
        assert (asked.hostname, asked.port) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
        found = httpx.get(f"http://127.0.0.1:{three}{asked.path}?{asked.query}", timeout=10)
        assert found.status_code == 200
        assert isinstance(found.json()[trigger["metadata"]["valueLocation"]], int)
    host.settled()


def test_a_rolling_upgrade_on_two_hosts_under_load_loses_nothing(tmp_path: Path, postgres_url: str) -> None:
    """The script of the page, with a systemctl that runs processes in the folder of the release."""
    old, new = Host(tmp_path / "old", postgres_url), Host(tmp_path / "new", postgres_url)
    release = (new.folder / "app.py").read_text()
    changed = release.replace("    total_cents: int\n", '    total_cents: int\n    voucher: str = ""\n')
    assert changed != release
    (new.folder / "app.py").write_text(changed)
    tens = free_tens()
    script = (new.folder / "deploy.sh").read_text()
    assert "127.0.0.1:946$copy/readyz" in script
    (new.folder / "deploy.sh").write_text(script.replace(":946$copy", f":{tens}$copy"))
    for each in (old, new):
        each.variables["UNITS"] = str(tmp_path / "units")
        each.variables["TENS"] = str(tens)
        systemctl = each.folder / "bin" / "systemctl"
        systemctl.write_text(f'#!/bin/sh\nexec {sys.executable} {SYSTEMCTL} "$@"\n')
        systemctl.chmod(0o755)
    (tmp_path / "units").mkdir()
    old.call(["posthouse", "db", "upgrade", "app:app"])
    try:
        old.call(["systemctl", "restart", "shop@1"])
        old.call(["systemctl", "restart", "shop@2"])
        with subprocess.Popen([sys.executable, "app.py", "0", "1500"], cwd=old.folder, env=old.variables) as publisher:
            until(lambda: old.invoices() > 20, "the old release at work", within=PATIENCE)
            new.call(["sh", "deploy.sh"])
            at_the_end = new.invoices()
            assert publisher.wait(PATIENCE) == 0
        assert at_the_end > 20
        new.place(1500, 1520)
        until(lambda: new.invoices() == 1520, "all invoices", within=PATIENCE)
        new.settled()
    finally:
        new.call(["systemctl", "stop", "shop@1"])
        new.call(["systemctl", "stop", "shop@2"])


def test_a_backup_comes_back_as_the_page_says(tmp_path: Path, postgres_server: PostgresServer) -> None:
    page = (PAGES / "backups.md").read_text()
    with postgres_server.database() as first, postgres_server.database() as second:
        host = Host(tmp_path / "before", first)
        host.call(["posthouse", "db", "upgrade", "app:app"])
        with host.started(["posthouse", "run", "app:app"], stops_within=30):
            host.place(0, 20)
            until(lambda: host.invoices() == 20, "twenty invoices", within=PATIENCE)
        host.place(20, 30)  # in the outbox when the backup is made
        dump = subprocess.run([str(binaries() / "pg_dump"), first], capture_output=True, check=True).stdout
        host.place(30, 40)  # gone with the old database
        loaded = [str(binaries() / "psql"), "--quiet", "--set", "ON_ERROR_STOP=1", second]
        subprocess.run(loaded, input=dump, capture_output=True, check=True)
        again = Host(tmp_path / "after", second)
        for command in ("posthouse db restored app:app --dry-run", "posthouse db restored app:app --yes"):
            assert command in page
            again.call(shlex.split(command))
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
        seek = "posthouse seek app:billing --time 2026-11-14T03:00:00Z"
        assert seek in page
        again.call([*shlex.split(seek.replace("2026-11-14T03:00:00Z", moment)), "--yes"])
        with again.started(["posthouse", "run", "app:app"], stops_within=30):
            again.place(100, 110)
            until(lambda: again.invoices() == 40, "the invoices of the backup and ten new ones", within=PATIENCE)
            again.settled()
