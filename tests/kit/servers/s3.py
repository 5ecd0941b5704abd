"""An object store for the tests: moto's S3 on the loopback, in a process of its own, ended by its process id.

moto looks whether an object is there and then writes it; S3 does both at once. So one request is served at a time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

import pytest

from tests.kit.servers.process import Server, folder_of, serves, started
from tests.kit.servers.table import give_up, report

BUCKET = "events"


class S3Server(Server):
    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.kit.servers.s3", str(self.port)]

    def _answers(self) -> bool:
        return serves(f"http://127.0.0.1:{self.port}/moto-api/")


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
    with folder_of("s3") as folder, started(S3Server(folder)) as server:
        asyncio.run(_make_bucket(server.port))
        report("s3", "emulated", f"moto {version('moto')}, one request at a time")
        yield server.port


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
