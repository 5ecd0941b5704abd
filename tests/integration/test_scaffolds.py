"""What `posthouse new --postgres` writes, used as a person would: its tests, its check, and the commands of its compose file."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml

from posthouse.cli.new.kinds import KINDS
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import until

RECIPES = Path(__file__).parents[2] / "docs" / "examples" / "recipes"
TARGETS = {"postgres": "bakery", "fastapi": "app", "django": "bakery.events", "flask": "app"}
PROGRAMS = Path(sys.executable).parent


class Scaffold:
    """A new application in a folder, and a server that it may use."""

    def __init__(self, kind: str, folder: Path, server: str) -> None:
        self.folder, self.kind = folder / "bakery", KINDS[kind]
        flags = () if kind == "postgres" else (f"--{kind}",)
        parts = urlsplit(server)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "POSTHOUSE_"))},
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "DATABASE_URL": server,
            "POSTHOUSE_TEST_SERVER": server,
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGUSER": parts.username or "",
            "PGDATABASE": parts.path.removeprefix("/"),
        }
        self.call("posthouse", "new", "bakery", "--postgres", *flags, folder=folder)

    def call(self, *command: str, folder: Path | None = None) -> str:
        with self.started(*command, folder=folder) as process:
            said, _ = process.communicate(timeout=90)
        assert process.returncode == 0, f"{shlex.join(command)}:\n{said}"
        return said

    def started(self, *command: str, folder: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=folder or self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def compose(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = yaml.safe_load((self.folder / "compose.yaml").read_text(encoding="utf-8"))
        return found

    def command(self, service: str) -> Sequence[str]:
        said: Sequence[str] = self.compose()["services"][service]["command"]
        return said


@pytest.mark.parametrize("kind", TARGETS)
def test_a_new_application_passes_its_own_tests_and_its_own_check(
    kind: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    scaffold = Scaffold(kind, tmp_path, postgres_server.url)
    program = [word for word in scaffold.kind.test.split() if "=" not in word]
    said = scaffold.call(*program, *(["-q", "-p", "no:cacheprovider"] if program == ["pytest"] else []))
    assert "passed" in said or "OK" in said
    scaffold.call(*scaffold.kind.posthouse, "check", TARGETS[kind])
    scaffold.call("ruff", "check", "--no-cache", ".")
    scaffold.call("ruff", "format", "--no-cache", "--check", ".")
    scaffold.call("hadolint", "Dockerfile")
    if scaffold.kind.serve[:1] == ("gunicorn",):
        scaffold.call(*scaffold.command("web"), "--check-config")


@pytest.mark.parametrize("kind", TARGETS)
def test_nothing_is_left_of_the_recipe_that_it_was_written_from(
    kind: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    scaffold = Scaffold(kind, tmp_path, postgres_server.url)
    written = [file for file in scaffold.folder.rglob("*") if file.is_file()]
    assert [file for file in written if "shop" in file.name] == []
    assert [file for file in written if "shop" in file.read_text(encoding="utf-8")] == []
    recipe = set((RECIPES / scaffold.kind.layers[0].removeprefix("recipes/") / "requirements.txt").read_text().split())
    assert recipe <= set((scaffold.folder / "requirements.txt").read_text().split())


@pytest.mark.parametrize("kind", ["postgres", "django"])
def test_the_commands_of_a_compose_file_migrate_run_and_stop(kind: str, postgres_url: str, tmp_path: Path) -> None:
    scaffold = Scaffold(kind, tmp_path, postgres_url)
    scaffold.call(*scaffold.command("migrate"))
    with scaffold.started(*scaffold.command("worker")) as worker:
        try:
            if kind == "postgres":
                scaffold.call(*scaffold.kind.place.replace("shop", "bakery").split()[4:])
            else:
                order = "from django.test import Client; assert Client().post('/orders/o1').status_code == 200"
                scaffold.call("python", "manage.py", "shell", "--verbosity", "0", "--command", order)
            table = "parcels" if kind == "postgres" else "bakery_parcel"
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                until(lambda: connection.execute(f"SELECT 1 FROM {table}").fetchall() == [(1,)], "a parcel")
            worker.send_signal(signal.SIGTERM)
            said, _ = worker.communicate(timeout=30)
        finally:
            worker.kill()
    assert worker.returncode == 0, said


def test_a_compose_file_waits_for_what_it_needs_and_gives_workers_their_time(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    services = Scaffold("fastapi", tmp_path, postgres_server.url).compose()["services"]
    assert set(services) == {"db", "migrate", "worker", "web"}
    for name in ("worker", "web"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        assert services[name]["environment"] == {"DATABASE_URL": "postgresql://bakery:secret@db/bakery"}
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert services["worker"]["stop_grace_period"] == "30s"
    assert services["web"]["healthcheck"]
    dockerfile = (tmp_path / "bakery" / "Dockerfile").read_text(encoding="utf-8")
    assert "USER 10001" in dockerfile
    assert 'CMD ["posthouse", "run", "app"' in dockerfile
