"""Rights as they are exported, on the real servers: with its own account a service publishes, consumes and sets dead letters aside;
with that of another it is refused, and nothing of it arrives."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import aio_pika
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from posthouse import App, Event, Payload, Policy, Rights, Service, Tx
from posthouse.accounts import accounts_of
from posthouse.broker import Delivery, Frame, Topology
from posthouse.brokers import open_broker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError
from posthouse.survey import Surveyed
from posthouse.trust.rights.account import Account
from posthouse.trust.rights.exports import rights_for
from posthouse.trust.rights.exports.kafka import acls
from posthouse.watch.permissions import permission_checks
from tests.kit.servers import nats as nats_kit
from tests.kit.servers import redis as redis_kit
from tests.kit.servers.process import folder_of, started
from tests.kit.servers.rabbitmq import RabbitmqServer, hashed
from tests.kit.waiting import eventually, until

pytestmark = pytest.mark.timeout(120)

OPERATIONS = {
    "Create": AclOperation.CREATE, "Delete": AclOperation.DELETE, "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS, "Read": AclOperation.READ, "Write": AclOperation.WRITE,
}  # fmt: skip


class Town:
    """Two services that have a store each, and an account each at one broker."""

    def __init__(self, namespace: str) -> None:
        self.orders, self.billing = Service("orders", namespace=namespace), Service("billing", namespace=namespace)
        self.invoiced: list[str] = []

        @self.orders.event("order.placed.v1", key="order_id")
        class OrderPlaced(Payload):
            order_id: str

        @self.billing.event("invoice.issued.v1", key="order_id")
        class InvoiceIssued(Payload):
            order_id: str

        @self.billing.on(OrderPlaced, policy=Policy(max_attempts=1))
        async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
            if event.data.order_id == "bad":
                raise ValueError("no money")
            self.invoiced.append(event.data.order_id)
            return InvoiceIssued(order_id=event.data.order_id)

        self.placed = OrderPlaced
        self.topic, self.issued = f"{namespace}.orders.order", f"{namespace}.billing.invoice"

    @property
    def accounts(self) -> list[Account]:
        return accounts_of([self.orders, self.billing])


@pytest.fixture
def town() -> Town:
    return Town(f"t{new_id()[-6:]}")


@pytest.fixture(params=["kafka", "nats", "rabbitmq", "redis"])
def urls(request: pytest.FixtureRequest, town: Town, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    """The URL of each account, `all` for one that may do everything, on a server that has the rights as they are exported."""
    with contextlib.ExitStack() as stack:
        if request.param == "kafka":
            yield stack.enter_context(on_kafka(request.getfixturevalue("kafka_server"), town))
        elif request.param == "rabbitmq":
            yield on_rabbitmq(request.getfixturevalue("managed_rabbitmq_server"), town)
        else:
            running = stack.enter_context(on_nats(town, monkeypatch) if request.param == "nats" else on_redis(town))
            yield running


@contextlib.contextmanager
def on_kafka(server: object, town: Town) -> Iterator[Mapping[str, str]]:
    """The server is that of all tests, and so are its accounts: what they may do here is taken away again."""
    servers, guests = server.servers, server.guests  # type: ignore[attr-defined]
    admin = AdminClient({"bootstrap.servers": servers})
    bindings = [
        AclBinding(
            ResourceType.TOPIC if acl.kind == "topic" else ResourceType.GROUP,
            acl.name,
            ResourcePatternType.LITERAL if acl.pattern == "literal" else ResourcePatternType.PREFIXED,
            acl.principal,
            "*",
            OPERATIONS[acl.operation],
            AclPermissionType.ALLOW,
        )
        for account in town.accounts
        for acl in acls(account)
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    sasl = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&partitions=2"
    try:
        yield {
            "all": f"kafka://{servers}?partitions=2",
            **{
                name: f"kafka://127.0.0.1:{guests}?{sasl}&sasl.username={name}&sasl.password={name}"
                for name in ("orders", "billing")
            },
        }
    finally:
        take_away(admin, [f"User:{account.name}" for account in town.accounts])


def take_away(admin: AdminClient, principals: Iterable[str]) -> None:
    """All that they may do, until the server itself knows of nothing any more."""
    everything = [
        AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any name, says its documentation
            ResourcePatternType.ANY,
            who,
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for who in principals
    ]
    for future in admin.delete_acls(everything).values():
        future.result(30)
    until(lambda: not any(admin.describe_acls(one).result(30) for one in everything), "taking rights away", pause=0.05)


def on_rabbitmq(server: RabbitmqServer, town: Town) -> Mapping[str, str]:
    files = rights_for("rabbitmq", town.accounts)
    said = json.loads(files["definitions.json"])
    said["users"] = [{"name": name, "password_hash": hashed(name), "tags": ""} for name in ("orders", "billing")]
    ask = urllib.request.Request(
        f"{server.management}/api/definitions", json.dumps(said).encode(), {"content-type": "application/json"}
    )
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, server.management, "shop", "shop")
    urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords)).open(ask, timeout=30).close()
    look = f"management={server.management.replace('http://', 'http://shop:shop@')}"
    return {
        "all": f"{server.url}?partitions=2",
        "look": look,
        **{name: f"{server.url_of(name)}?partitions=2" for name in ("orders", "billing")},
    }


class NatsWithRights(nats_kit.NatsServer):
    """With the users of an export."""

    users = ""

    def _command(self) -> list[str]:
        (self._folder / "rights.conf").write_text(self.users)
        file = self._folder / "nats.conf"
        everything = "users: [ { user: shop, password: shop }"
        text = self.users[self.users.index("users: [") :].replace("users: [", everything, 1)
        (self._folder / "rights.conf").write_text(text)
        file.write_text(
            f'listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: "{self._folder}/data" }}\n'
            "accounts { SHOP { jetstream: enabled\n include 'rights.conf' } }\n"
        )
        return [str(self._program), "-c", str(file)]


@contextlib.contextmanager
def on_nats(town: Town, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    for name in ("ORDERS", "BILLING"):
        monkeypatch.setenv(f"NATS_PASSWORD_{name}", name.lower())
    binary = nats_kit.program()
    with folder_of("nats") as folder:
        server = NatsWithRights(binary, folder)
        server.users = rights_for("nats", town.accounts)["rights.conf"]
        with started(server):
            yield {
                "all": f"{server.url_of('shop')}?partitions=2",
                **{name: f"{server.url_of(name)}?partitions=2&inbox=_INBOX_{name}" for name in ("orders", "billing")},
            }


class RedisWithRights(redis_kit.RedisServer):
    """With the ACL file of an export."""

    users = ""

    def _command(self) -> list[str]:
        acl, file = self._folder / "users.acl", self._folder / "redis.conf"
        acl.write_text(self.users)
        file.write_text(
            f'port {self.port}\nbind 127.0.0.1\ndir "{self._folder}"\nsave ""\naclfile "{acl}"\n'
            + "".join(f"{name} {value}\n" for name, value in self._settings.items())
        )
        return [str(self._program), str(file)]


@contextlib.contextmanager
def on_redis(town: Town) -> Iterator[Mapping[str, str]]:
    binary: Path = redis_kit.program()
    with folder_of("redis") as folder:
        server = RedisWithRights(binary, folder, redis_kit.DURABLE)
        lines = rights_for("redis", town.accounts)["users.acl"].splitlines()
        server.users = "user default on nopass ~* &* +@all\n" + "".join(
            line.replace("<SHA-256 of its password>", sha256(line.split()[1].encode()).hexdigest()) + "\n"
            for line in lines
        )
        with started(server):
            there = f"127.0.0.1:{server.port}?partitions=2"
            yield {"all": f"redis://{there}", **{n: f"redis://{n}:{n}@{there}" for n in ("orders", "billing")}}


async def test_a_service_works_with_its_own_account_and_with_that_of_another_it_is_refused(
    urls: Mapping[str, str], town: Town, tmp_path: Path
) -> None:
    orders = App(town.orders, store=f"sqlite:///{tmp_path}/orders.db", broker=urls["orders"])
    billing = App(town.billing, store=f"sqlite:///{tmp_path}/billing.db", broker=urls["billing"])
    async with orders.running(), billing.running():
        for order in ("o1", "bad", "o2"):
            async with town.orders.transaction("t1") as tx:
                tx.publish(town.placed(order_id=order))
        await eventually(lambda: sorted(town.invoiced) == ["o1", "o2"], within=60)

        async def everything_sent() -> bool:
            counts = await billing.store.counts()
            return sum(counts.committed.values()) == 3 and not sum(counts.unsent.values())

        await eventually(everything_sent, within=60)  # two invoices, and the dead letter
    everything, keeps = urls["all"], not urls["all"].startswith("rabbitmq")  # there what was read is gone
    there = {town.topic: 3 if keeps else 0, f"{town.topic}.dlq": 1, town.issued: 2}
    assert {topic: await stored(everything, topic) for topic in there} == there
    for account, topic in (("billing", town.topic), ("orders", town.issued)):
        await refused_to_say(urls[account], topic)
    assert {topic: await stored(everything, topic) for topic in there} == there
    if keeps:
        assert await read(urls["all"], f"new{new_id()[-6:]}", town.issued)
    await refused_to_read(urls["orders"], "orders", town.issued)
    await refused_to_read(urls["orders"], "billing", town.topic)


async def test_doctor_tells_an_account_that_fits_from_one_that_is_too_wide_and_one_that_is_another_s(
    urls: Mapping[str, str], town: Town, tmp_path: Path
) -> None:
    made = App(town.orders, town.billing, store=f"sqlite:///{tmp_path}/all.db", broker=urls["all"])
    await made.broker.ensure(made.opened.topology())
    await made.broker.ensure(Topology(topics=[f"{town.orders.namespace}.mail.letter"], groups={}))
    await made.aclose()

    async def judged(account: str) -> dict[str, tuple[str, str]]:
        url = urls[account] + (("&" if "?" in urls[account] else "?") + urls["look"] if "look" in urls else "")
        app = App(town.billing, store=f"sqlite:///{tmp_path}/billing.db", broker=url, rights=Rights())
        try:
            checks = await permission_checks(app)
        finally:
            await app.aclose()
        return {check.name: (check.judgement, check.found) for check in checks}

    own = await judged("billing")
    assert {name: judgement for name, (judgement, _) in own.items()} == {
        "account, too narrow": "ok",
        "account, too wide": "ok",
    }
    wide = await judged("all")
    assert wide["account, too narrow"][0] == "ok"
    assert wide["account, too wide"] == (
        "warn",
        f"it may publish to {town.topic}, any other topic; read any other topic too",
    )
    other = await judged("orders")
    assert other["account, too narrow"][0] == "warn"
    assert f"publish to {town.issued}" in other["account, too narrow"][1]
    assert f"publish to {town.topic}" in other["account, too wide"][1]
    look = open_broker(urls["all"], clock=SystemClock())
    try:
        assert isinstance(look, Surveyed)
        found = await look.survey(Topology(topics=[], groups={}))
        assert not [resource.topic for resource in found if "nobodys" in resource.topic]
    finally:
        await look.aclose()


async def stored(everything: str, topic: str) -> int:
    """How many frames a topic has got, as somebody sees who may see all; where no history is kept, what nobody has read yet."""
    if everything.startswith("rabbitmq"):
        return await unread(everything, topic)
    broker = open_broker(everything, clock=SystemClock())
    try:
        return (await broker.progress(f"look{new_id()[-6:]}", [topic]))[topic].stored
    finally:
        await broker.aclose()


async def unread(everything: str, topic: str) -> int:
    """Of its groups, and of what no group takes."""
    number = 0
    connection = await aio_pika.connect(everything.replace("rabbitmq://", "amqp://", 1))
    async with connection:
        for name in (f"{topic}.unread", *(f"billing.{topic}.{lane}of2" for lane in range(2))):
            async with connection.channel() as channel:
                with contextlib.suppress(aio_pika.exceptions.ChannelNotFoundEntity):
                    queue = await channel.declare_queue(name, passive=True)
                    number += queue.declaration_result.message_count or 0
    return number


async def refused_to_say(account: str, topic: str) -> None:
    broker = open_broker(account, clock=SystemClock())
    try:
        try:
            verdicts = await broker.publish([Frame(topic=topic, id=new_id(), key="k", body=b"forged")])
        except BrokerError:
            verdicts = []
        assert not any(verdict.accepted for verdict in verdicts)
    finally:
        await broker.aclose()


async def refused_to_read(account: str, group: str, topic: str) -> None:
    """Neither in a group of its own nor in that of another service does anything come to it."""
    got: list[Delivery] = []
    with contextlib.suppress(BrokerError):
        got += await read(account, group, topic)
    assert got == []


async def read(account: str, group: str, topic: str) -> list[Delivery]:
    broker = open_broker(account, clock=SystemClock())
    try:
        stream = await broker.subscribe(group, [topic])
        try:
            for _ in range(5):
                if got := await stream.receive(10, 1.0):
                    return list(got)
            return []
        finally:
            await stream.aclose()
    finally:
        await broker.aclose()
