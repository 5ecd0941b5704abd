"""Fault 20 for the embedded log: no room. Publishing is refused with a clear word, reading works, and it recovers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("full_disk.py")


def outcome(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip()


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return outcome("unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt && echo mounted") == "mounted"


def test_a_full_file_system_refuses_frames_and_recovers(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("this user may not mount a file system of its own")
    assert outcome("unshare", "-rm", sys.executable, str(SCRIPT), "tmpfs", str(tmp_path)) == "done"


def test_a_write_that_fails_refuses_frames_and_recovers(tmp_path: Path) -> None:
    """A limit on file sizes is an I/O error to SQLite, not a full disk: the files are opened anew after it."""
    assert outcome(sys.executable, str(SCRIPT), "limit", str(tmp_path)) == "done"
