"""A RabbitMQ node for the tests: the system's, or Debian's package unpacked without installing it; a node of its own in
a temporary folder, on the loopback, ended by its own process id. POSTHOUSE_TEST_RABBITMQ_HOME names the folder of another version (the one with `sbin`);
POSTHOUSE_TEST_RABBITMQ is the URL of a node that runs already, with the users of `RIGHTS`: the tests do not end it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit.servers.debian import environment, unpacked
from tests.kit.servers.ports import free_ports
from tests.kit.servers.process import Server, folder_of, listens, started
from tests.kit.servers.table import report
from tests.kit.waiting import until

ERLANG_HOME = "usr/lib/erlang"
CONFIGURATION = """
listeners.tcp.local = 127.0.0.1:{port}
load_definitions = {folder}/definitions.json
log.console = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
"""
MANAGEMENT = """
management.tcp.ip = 127.0.0.1
management.tcp.port = {port}
collect_statistics_interval = 500
"""
ERLANG = (
    "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false "
    "-rabbit quorum_tick_interval 500"  # how old the lists of a managed node are
)
GREETING = b"AMQP\x00\x00\x09\x01"
RIGHTS = {
    "shop": {"configure": ".*", "write": ".*", "read": ".*"},
    "reader": {"configure": "^posthouse", "write": "^posthouse", "read": ".*"},
}


class RabbitmqServer(Server):
    """With ports for Erlang, and beside it the name server that Erlang wants."""

    def __init__(self, home: Path, folder: Path, *, managed: bool = False) -> None:
        super().__init__(folder)
        self._home = home
        self._names: subprocess.Popen[bytes] | None = None
        self._managed = managed
        self.ours = True
        self._far_port, self._names_port, self._management_port = free_ports(3)

    @property
    def url(self) -> str:
        return self.url_of("shop")

    @property
    def _root(self) -> Path:
        """Where the package lies: `/`, where it is installed."""
        return self._home.parents[4]

    @property
    def _path(self) -> str:
        """Where Erlang is looked for."""
        return f"{self._root / ERLANG_HOME / 'bin'}:{os.environ.get('PATH', os.defpath)}"

    @property
    def version(self) -> str:
        return self._home.name.rpartition("-")[2]

    def url_of(self, user: str, port: int | None = None) -> str:
        return f"rabbitmq://{user}:{user}@127.0.0.1:{port or self.port}"

    @property
    def management(self) -> str:
        """The URL of its management API, where it was started with it: that takes twice as long."""
        return f"http://127.0.0.1:{self._management_port}"

    def start(self) -> None:
        if self._names is None:
            epmd = shutil.which("epmd", path=self._path) or "epmd"
            self._names = subprocess.Popen(
                [epmd, "-address", "127.0.0.1", "-port", str(self._names_port)],
                env=environment(self._root),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            until(lambda: listens(self._names_port), "a start of epmd")
        super().start()

    def _command(self) -> list[str]:
        settings = CONFIGURATION.format(port=self.port, folder=self._folder)
        settings += MANAGEMENT.format(port=self._management_port) if self._managed else ""
        (self._folder / "rabbitmq.conf").write_text(settings)
        (self._folder / "definitions.json").write_text(json.dumps(definitions()))
        (self._folder / "plugins").write_text("[rabbitmq_management]." if self._managed else "[].")
        return [str(self._home / "sbin" / "rabbitmq-server")]

    def _answers(self) -> bool:
        """It is asked for a greeting: a node that boots takes connections too early."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(GREETING)
            return bool(connection.recv(1))
        return False

    def close(self) -> None:
        """The name server ends with it."""
        if self._names is not None:
            self._names.kill()
            self._names.wait(self.patience)

    async def kill(self) -> None:
        await asyncio.sleep(1.0)  # a queue may be lost that is younger than this: that is what `settle` is for
        await super().kill()

    def _environment(self) -> Mapping[str, str]:
        """With it the script becomes Erlang, and its process id is the server's."""
        return {
            **environment(self._root),
            "HOME": str(self._folder),
            "ERL_CRASH_DUMP": str(self._folder / "erl_crash.dump"),
            "PATH": self._path,
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"posthouse{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._far_port),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "RUNNING_UNDER_SYSTEMD": "1",
        }


def definitions() -> dict[str, object]:
    """A virtual host, and users who are called like their passwords."""
    return {
        "vhosts": [{"name": "/"}],
        "users": [{"name": user, "password_hash": hashed(user), "tags": "administrator"} for user in RIGHTS],
        "permissions": [{"user": user, "vhost": "/", **rights} for user, rights in RIGHTS.items()],
    }


def hashed(password: str) -> str:
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


@functools.cache
def home() -> Path:
    """Where the server is, or the tests that need it are skipped."""
    given = os.environ.get("POSTHOUSE_TEST_RABBITMQ_HOME")
    if given is not None:
        return Path(given)
    if shutil.which("erl") is not None and (found := _newest(Path("/"))) is not None:
        return found
    root = unpacked("rabbitmq", "rabbitmq-server")
    found = _newest(root)
    assert found is not None
    erl = root / ERLANG_HOME / "bin" / "erl"
    erl.write_text(erl.read_text().replace(f"ROOTDIR=/{ERLANG_HOME}", f"ROOTDIR={root / ERLANG_HOME}"))
    return found


def _newest(root: Path) -> Path | None:
    found = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1].parents[1] if found else None


@contextlib.contextmanager
def running(*, managed: bool = False) -> Iterator[RabbitmqServer]:
    """A new node with nothing in it; `managed`: with its management API."""
    place = home()
    with folder_of("rabbitmq") as folder:
        server = RabbitmqServer(place, folder, managed=managed)
        with contextlib.closing(server), started(server):
            yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitmqServer]:
    """One node for the whole run; tests may restart it where it is `ours`."""
    given = os.environ.get("POSTHOUSE_TEST_RABBITMQ")
    if given is not None:
        server = RabbitmqServer(Path("given"), Path("given"))
        server.port, server.ours = urlsplit(given).port or 5672, False
        report("rabbitmq", "real", "at POSTHOUSE_TEST_RABBITMQ")
        yield server
        return
    with running() as server:
        report("rabbitmq", "real", f"{server.version}, {server._home}")
        yield server


@pytest.fixture(scope="session")
def managed_rabbitmq_server() -> Iterator[RabbitmqServer]:
    """A second node, with the management API, for those who look at everything that is there."""
    with running(managed=True) as server:
        report("rabbitmq, managed", "real", f"{server.version}, {server._home}")
        yield server
