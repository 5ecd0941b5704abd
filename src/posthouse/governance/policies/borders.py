"""Rules about borders: vendors behind adapters, facts through the outbox, no waiting on the network inside a transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.words import matches, one_of

VENDORS = (
    "adyen", "anthropic", "azure", "boto3", "botocore", "braintree", "cohere", "google.cloud", "hubspot", "mailchimp_marketing",
    "mistralai", "onnxruntime", "openai", "paypalrestsdk", "plaid", "sendgrid", "slack_sdk", "square", "stripe", "twilio",
    "vonage",
)  # fmt: skip
BROKERS = (
    "aio_pika",
    "aiokafka",
    "aiormq",
    "confluent_kafka",
    "google.cloud.pubsub",
    "google.cloud.pubsub_v1",
    "kafka",
    "nats",
    "pika",
)
CLIENTS = ("aiohttp", "grpc", "http.client", "httpx", "requests", "urllib.request", "urllib3")
VERBS = one_of(
    "AsyncClient Client ClientSession HTTPConnection HTTPSConnection PoolManager Session delete get insecure_channel "
    "head patch post put request secure_channel stream urlopen"
)


def vendor_import(facts: Facts) -> Iterator[Found]:
    owners = {**dict.fromkeys(VENDORS, ()), **facts.settings.vendors}
    for found in facts.code.imports:
        vendor = _package(found.name, owners)
        if vendor is None or _package(found.name, BROKERS):
            continue
        homes = owners[vendor] or facts.settings.adapters
        if not matches(found.module, homes):
            sentence = f"{found.module} imports {vendor}, which belongs into {' or '.join(homes)}"
            yield Found(where=found.module, sentence=sentence, place=found.place)


def around_the_outbox(facts: Facts) -> Iterator[Found]:
    for found in facts.code.imports:
        broker = _package(found.name, BROKERS)
        if broker and not matches(found.module, facts.settings.adapters):
            sentence = f"{found.module} imports {broker}: what it sends by itself is not part of any transaction"
            yield Found(where=found.module, sentence=sentence, place=found.place)


def network_call_in_handler(facts: Facts) -> Iterator[Found]:
    for call in facts.code.calls:
        inside = facts.in_transaction(call.function)
        if inside and _package(call.name, CLIENTS) and call.name.rpartition(".")[2] in VERBS:
            sentence = f"{inside} calls {call.name} while its transaction is open"
            yield Found(where=inside, sentence=sentence, place=call.place)


def _package(name: str, packages: Collection[str]) -> str | None:
    """The longest of these packages that a name lies in."""
    inside = [package for package in packages if name == package or name.startswith(f"{package}.")]
    return max(inside, key=len, default=None)


def call_not_awaited(facts: Facts) -> Iterator[Found]:
    for call in facts.code.unawaited:
        sentence = f"{call.function} calls {call.name} without `await`: nothing is done, and the transaction commits"
        yield Found(where=call.function, sentence=sentence, place=call.place)


RULES = (
    Rule(
        id="vendor-import",
        severity=Severity.ERROR,
        title="A vendor's library outside its adapter",
        sees="Imports of well-known vendors' packages (payment, mail, clouds, models), and of those under `vendors`, in modules that "
        "neither `vendors` nor `adapters` of the settings name.",
        why="The vendor's types and errors spread through the domain, and changing the vendor means changing everything.",
        fix="Put the calls behind a protocol of your own, in a module such as `shop.adapters.stripe`.",
        seeds="D §15 (vendor SDK imports outside the owning adapter)",
        look=vendor_import,
    ),
    Rule(
        id="around-the-outbox",
        severity=Severity.ERROR,
        title="A broker's client beside the outbox",
        sees="Imports of Kafka's, NATS's, RabbitMQ's and Pub/Sub's clients outside `adapters` of the settings.",
        why="A crash between the commit and the send loses the fact, a rollback after the send makes one that never happened.",
        fix="Publish through `tx.publish` or `service.outbox.add`.",
        seeds="A Anti-Patterns (dual writes without outbox); C §7; D §6.4; E §4",
        look=around_the_outbox,
    ),
    Rule(
        id="network-call-in-handler",
        severity=Severity.WARNING,
        title="A network call inside a handler, or in the turn of a saga",
        sees="Calls of httpx, requests, aiohttp, urllib, grpc by their modules' names, or a client made of them, in a handler's own body "
        "and in every method of a saga's class. What it calls in other functions is not seen.",
        why="The transaction is open and its rows are locked while somebody else's server thinks; and the call is made again when the "
        "event is.",
        fix="Make it in a function of its own, given as `on(…, calling=…)` or `@step(…, calling=…)`: it runs while no transaction is "
        "open, and the handler or the step gets its answer. Give the other side a key that stays the same when the call is repeated.",
        seeds="A Anti-Patterns (synchronous event chains); D §1 and §15",
        look=network_call_in_handler,
    ),
    Rule(
        id="call-not-awaited",
        severity=Severity.ERROR,
        title="A call that is never awaited",
        sees="`outbox.add`, `start_saga` and `decide`, and `execute` and `cancel` of a Tx or a Turn, as statements without `await`. One that "
        "is kept in a name, and a Tx that comes from elsewhere than an `async with` or an annotated parameter, are not seen.",
        why="Python only warns, when the coroutine is thrown away: the row is committed, and its fact is lost.",
        fix="Write `await` before it; in a function without an event loop `outbox.add_now` and `outbox.joined` do it at once.",
        seeds="A Anti-Patterns (dual writes without outbox); C §7",
        look=call_not_awaited,
    ),
)
