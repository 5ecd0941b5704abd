"""The cable between a service and its database is pulled: packets vanish without a word, and come back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.servers.postgres import Unavailable, binaries, give_up

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_network_that_goes_away_and_comes_back_loses_doubles_and_inverts_nothing() -> None:
    try:
        binaries()
    except Unavailable as error:
        give_up(f"no PostgreSQL to cut off: {error}")
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("no ip or no unshare on this machine: a network of its own cannot be made")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network of its own")
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "tests.faults.cut_network"],
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.stdout.strip().endswith("done"), done.stderr[-4000:]
