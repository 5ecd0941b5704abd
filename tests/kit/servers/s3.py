"""An object store for the tests: moto's S3 on the loopback, in a process of its own, ended by its process id.

moto looks whether an object is there and then writes it; S3 does both at once. So one request is served at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.kit.servers.table import give_up, report

BUCKET = "events"
PATIENCE = 60.0
ROOT = Path(__file__).parents[3]


def credentials(port: int) -> dict[str, Any]:
    """What the driver's client is made with."""
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """One emulated server for the whole run, with one empty bucket."""
    if importlib.util.find_spec("moto") is None:
        give_up("s3", "no moto: pip install 'moto[server]'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.servers.s3", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        _wait_for(process, port)
        asyncio.run(_make_bucket(port))
        report("s3", "emulated", f"moto {version('moto')}, one request at a time")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("moto did not start")
        time.sleep(0.02)


async def _make_bucket(port: int) -> None:
    import aiobotocore.session

    async with aiobotocore.session.get_session().create_client("s3", **credentials(port)) as client:
        await client.create_bucket(Bucket=BUCKET)


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    moto = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def application(environ: dict[str, object], start_response: Callable[..., object]) -> Iterable[bytes]:
        with one_at_a_time:
            return list(moto(environ, start_response))

    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
