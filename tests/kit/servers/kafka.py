"""An Apache Kafka server (KRaft, one node) for the tests: jars from Maven Central, kept under .cache, on the loopback, in a
temporary folder, ended by its own process id. POSTHOUSE_TEST_KAFKA_URL names a server that runs already; it is never ended."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.kit.servers.once import CACHE as HOUSE
from tests.kit.servers.once import once
from tests.kit.servers.ports import free_ports
from tests.kit.servers.process import Server, folder_of, listens, started
from tests.kit.servers.table import give_up, report

VERSION = "4.3.1"
CACHE = HOUSE / "kafka"
PATIENCE = 90.0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>posthouse</groupId> <artifactId>kafka-for-tests</artifactId> <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId> <artifactId>kafka_2.13</artifactId> <version>{version}</version></dependency>
  </dependencies>
</project>
"""
CONFIGURATION = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=MAIN://127.0.0.1:{port},LINK://127.0.0.1:{behind},GUESTS://127.0.0.1:{guests},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=MAIN://127.0.0.1:{port},LINK://127.0.0.1:{link},GUESTS://127.0.0.1:{guests}
listener.security.protocol.map=MAIN:PLAINTEXT,LINK:PLAINTEXT,GUESTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=MAIN
controller.listener.names=CONTROLLER
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
listener.name.guests.sasl.enabled.mechanisms=PLAIN
listener.name.guests.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="guest" password="guest" user_guest="guest" user_orders="orders" user_billing="billing";
log.dirs={folder}/data
num.network.threads=2
num.io.threads=2
auto.create.topics.enable=false
delete.topic.enable=true
broker.session.timeout.ms=5000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=100
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
"""MAIN for everybody, LINK as it is seen through a proxy, GUESTS for those who have few rights. A server that was killed may
not come back before its session has ended: Kafka's own 9 s are for networks."""
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaServer(Server):
    """With ports for a proxy and for guests beside its own."""

    controlled = True
    patience = PATIENCE

    def __init__(self, jars: Path, folder: Path, jvm: list[str]) -> None:
        super().__init__(folder)
        self._jars = jars
        self._jvm = jvm
        self.behind, self.link, self.guests, self._controller = free_ports(4)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    def make(self) -> None:
        """Write the settings, and make the data folder what Kafka wants."""
        (self._folder / "server.properties").write_text(
            CONFIGURATION.format(
                port=self.port,
                behind=self.behind,
                link=self.link,
                guests=self.guests,
                controller=self._controller,
                folder=self._folder,
            )
        )
        cluster = base64.b64encode(uuid.uuid4().bytes, altchars=b"AB").decode().rstrip("=")
        command = ["java", *JVM, *shared_classes(self._jars), "-cp", class_path(self._jars), "kafka.tools.StorageTool"]
        command += ["format", "-t", cluster, "-c", str(self._folder / "server.properties")]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)

    def _command(self) -> list[str]:
        settings = str(self._folder / "server.properties")
        return ["java", *self._jvm, "-cp", class_path(self._jars), "kafka.Kafka", settings]

    def _answers(self) -> bool:
        return listens(self.port)


class GivenServer:
    """One that somebody else runs."""

    controlled = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.servers = url.removeprefix("kafka://")


def class_path(jars: Path) -> str:
    return os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))


def shared_classes(jars: Path) -> list[str]:
    """Classes as they were loaded by an earlier run, where that was kept: Java starts in half the time."""
    archive = jars / "classes.jsa"
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def kafka_jars() -> Path:
    """The server's jars; fetched once. The tests that need them are skipped where they cannot be had."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            give_up("kafka", f"no {program}: install a Java runtime (17 or later) and Maven")
    jars = CACHE / VERSION
    with once("maven"):
        if not jars.exists():
            fetch(jars)
            keep_classes(jars)
    return jars


def fetch(jars: Path) -> None:
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent, ignore_cleanup_errors=True) as folder:
        (Path(folder) / "pom.xml").write_text(POM.format(version=VERSION))
        command = [
            "mvn",
            "-B",
            "-q",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            give_up("kafka", "mvn did not come back with the jars", registry_silent=True)
        if done.returncode:
            give_up("kafka", f"mvn: {done.stdout[-300:]}{done.stderr[-300:]}", registry_silent=True)
        (Path(folder) / "jars").rename(jars)


def keep_classes(jars: Path) -> None:
    """Run a server once, so that Java writes down the classes that it loaded."""
    archive = jars / "classes.jsa"
    with folder_of("kafka") as folder:
        server = KafkaServer(jars, folder, [*JVM, f"-XX:ArchiveClassesAtExit={archive}.new"])
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError, OSError):  # then it starts a little slower
            server.make()
            server.start()
            server.end(signal.SIGTERM)
            Path(f"{archive}.new").rename(archive)


@contextlib.contextmanager
def running(*, quick_start: bool = True) -> Iterator[KafkaServer]:
    """A new server with nothing in it. One that is measured is compiled well instead of started quickly."""
    jars = kafka_jars()
    jvm = [*(JVM if quick_start else [*JVM[:2], "-Xmx1g"]), *shared_classes(jars)]
    with folder_of("kafka") as folder:
        server = KafkaServer(jars, folder, jvm)
        server.make()
        with started(server):
            let_guests_in(server)
            wake_groups(server)
            yield server


def let_guests_in(server: KafkaServer) -> None:
    """They may look at every topic, and write to those whose names begin with `guest`."""
    admin = AdminClient({"bootstrap.servers": server.servers})
    rules = [
        (ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, AclOperation.DESCRIBE),
        (ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.TOPIC, "guest", ResourcePatternType.PREFIXED, AclOperation.WRITE),
    ]
    acls = [
        AclBinding(kind, name, pattern, "User:guest", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in rules
    ]
    insist(lambda: [future.result(PATIENCE) for future in admin.create_acls(acls).values()])


def wake_groups(server: KafkaServer) -> None:
    """A new server makes the log of its groups when somebody asks for the first one, which takes seconds."""
    reader = Consumer({"bootstrap.servers": server.servers, "group.id": "nobody"})
    insist(lambda: reader.committed([TopicPartition("nothing", 0)], PATIENCE))
    reader.close()


def insist(ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            ask()
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """One server for the whole run; tests may restart it."""
    given = os.environ.get("POSTHOUSE_TEST_KAFKA_URL")
    if given:
        report("kafka", "real", f"{given}, by POSTHOUSE_TEST_KAFKA_URL")
        yield GivenServer(given)  # type: ignore[misc]  # tests that end it look at `controlled`
        return
    with running() as server:
        report("kafka", "real", f"{VERSION}, jars from Maven Central")
        yield server
