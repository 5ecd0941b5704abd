"""Prometheus and promtool for the tests: the system's, or those of Debian's package, unpacked without installing it; on the
loopback, in a folder of its own, ended by its own process id."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.kit.servers.debian import kept
from tests.kit.servers.process import Server, folder_of, serves, started
from tests.kit.servers.table import report

EVERY = "1s"
"""How often it scrapes and evaluates."""


class PrometheusServer(Server):
    """It scrapes these targets, a job for each name, and evaluates these rules."""

    def __init__(self, folder: Path, rules: str, targets: Mapping[str, str]) -> None:
        super().__init__(folder)
        (folder / "rules.yaml").write_text(rules)
        jobs = [{"job_name": job, "static_configs": [{"targets": [place]}]} for job, place in targets.items()]
        interval = {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY}
        # JSON is YAML too
        (folder / "prometheus.yaml").write_text(
            json.dumps({"global": interval, "rule_files": ["rules.yaml"], "scrape_configs": jobs})
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[Any]:
        """The lines of an answer, now."""
        found: list[Any] = self.ask("query", query=expr)["result"]
        return found

    def firing(self) -> Mapping[str, Any]:
        """Alerts that fire, by their names."""
        return {one["labels"]["alertname"]: one for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}

    def rules(self) -> Sequence[Any]:
        """Every rule, with its health and what went wrong when it was evaluated."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def _command(self) -> list[str]:
        return [
            str(program("prometheus")),
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def _answers(self) -> bool:
        return serves(f"{self.url}/-/ready")


@functools.cache
def program(name: str) -> Path:
    """`prometheus` or `promtool`; or the tests that need it are skipped."""
    found = shutil.which(name)
    path = Path(found) if found else kept("prometheus", "prometheus") / "usr" / "bin" / name
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    report("prometheus", "real", f"{(said.stdout or said.stderr).split()[2]}, {path}")
    return path


def promtool(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What it says, and whether it is content."""
    return subprocess.run([program("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@contextmanager
def running(rules: str, targets: Mapping[str, str]) -> Iterator[PrometheusServer]:
    """A new server with nothing in it."""
    with folder_of("prometheus") as folder, started(PrometheusServer(folder, rules, targets)) as server:
        yield server
