"""What `systemctl restart|stop` does to one unit, where there is no systemd: SIGTERM, wait for a good end, start in this folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def stop(pid: int) -> None:
    """It is not our child: we see it end, not how."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return
            os.kill(pid, 0)
            time.sleep(0.02)
        sys.exit(f"{pid} did not end within 30 s of SIGTERM")


if __name__ == "__main__":
    verb, unit = sys.argv[1:]
    noted = Path(os.environ["UNITS"]) / unit
    if noted.exists():
        with contextlib.suppress(FileNotFoundError):
            stop(int(noted.read_text()))
    if verb == "restart":
        port = os.environ["TENS"] + unit.partition("@")[2]
        command = ["posthouse", "run", "app:app", "--log-json", "--http", f"127.0.0.1:{port}"]
        with Path(os.environ["UNITS"], f"{unit}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        noted.write_text(str(process.pid))
