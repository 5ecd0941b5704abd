"""Deliberate mistakes, by kind: what a hurried newcomer writes, and what he reads. `$NAME=value` sets the environment."""

from __future__ import annotations

from tests.misuse.scene import Mistake

MISTAKES: dict[str, list[Mistake]] = {
    "Options": [
        Mistake(
            "order in capitals",
            'Policy(order="Key")',
            "Policy(order='Key'): it is 'key' or 'none'. Did you mean 'key'?",
        ),
        Mistake(
            "on_dead capital",
            'Policy(on_dead="Stop")',
            "Policy(on_dead='Stop'): it is 'stop' or 'skip'. Did you mean 'stop'?",
        ),
        Mistake("on_dead unknown", 'Policy(on_dead="drop")', "Policy(on_dead='drop'): it is 'stop' or 'skip'."),
        Mistake(
            "unknown option", "Policy(never=ValueError)", "Policy has no option 'never'. Did you mean 'never_retry'?"
        ),
        Mistake(
            "class without tuple",
            "Policy(never_retry=ValueError)",
            "Policy(never_retry=ValueError): it is a tuple, each an exception class: write never_retry=(ValueError,)",
        ),
        Mistake(
            "list of classes",
            "Policy(retry_immediately=[TimeoutError])",
            "Policy(retry_immediately=[TimeoutError]): it is a tuple, each an exception class: write retry_immediately=(TimeoutError,)",
        ),
        Mistake(
            "instance of error",
            'Policy(never_retry=(ValueError("x"),))',
            "Policy(never_retry=(ValueError('x'),)): it is a tuple, each an exception class",
        ),
        Mistake(
            "deadline text",
            'Policy(deadline="10s")',
            "Policy(deadline='10s'): it is a number of seconds above 0: write deadline=10.0",
        ),
        Mistake(
            "deadline timedelta",
            "Policy(deadline=timedelta(minutes=2))",
            "Policy(deadline=datetime.timedelta(seconds=120)): it is a number of seconds above 0: write deadline=120.0",
        ),
        Mistake("deadline zero", "Policy(deadline=0)", "Policy(deadline=0): it is a number of seconds above 0"),
        Mistake("no attempts", "Policy(max_attempts=0)", "Policy(max_attempts=0): it is a whole number, 1 or more"),
        Mistake(
            "attempts text",
            'Policy(max_attempts="3")',
            "Policy(max_attempts='3'): it is a whole number, 1 or more: write max_attempts=3",
        ),
        Mistake(
            "first longer than last",
            "Policy(first_delay=3600)",
            "Policy: first_delay=3600 is longer than last_delay=600: raise last_delay",
        ),
        Mistake(
            "grouped text", 'Policy(grouped="yes")', "Policy(grouped='yes'): it is True or False: write grouped=True"
        ),
        Mistake("by place", "Policy(5)", "Policy takes its options by name, as in Policy(max_attempts=…)"),
        Mistake("limit text", 'Settings(limit="256kb")', "Settings(limit='256kb'): it is a whole number, 1 or more"),
        Mistake(
            "setting misspelt",
            "Settings(in_fligth=10)",
            "Settings has no option 'in_fligth'. Did you mean 'in_flight'?",
        ),
        Mistake(
            "start word", 'Settings(start="beginning")', "Settings(start='beginning'): it is 'earliest' or 'latest'."
        ),
        Mistake(
            "saga misfits word",
            'Settings(saga_misfits="ignore")',
            "Settings(saga_misfits='ignore'): it is 'refuse' or 'start'.",
        ),
        Mistake(
            "retention timedelta",
            "Settings(inbox_retention=timedelta(days=30))",
            "Settings(inbox_retention=datetime.timedelta(days=30)): it is a number of seconds, 0 or more: write inbox_retention=2592000.0",
        ),
        Mistake("relay dict", 'Settings(relay={"batch": 10})', "Settings(relay={'batch': 10}): it is a RelaySettings"),
        Mistake(
            "relay class",
            "Settings(relay=RelaySettings)",
            "Settings(relay=RelaySettings): it is a RelaySettings: write relay=RelaySettings(…)",
        ),
        Mistake(
            "source",
            'RelaySettings(source="WAL")',
            "RelaySettings(source='WAL'): it is 'poll' or 'wal'. Did you mean 'wal'?",
        ),
        Mistake("batch 0", "RelaySettings(batch=0)", "RelaySettings(batch=0): it is a whole number, 1 or more"),
        Mistake(
            "rules text",
            'Rules(platform="*platform.*")',
            "Rules(platform='*platform.*'): it is a list, each a text: write platform=['*platform.*']",
        ),
        Mistake(
            "rules retention",
            'Rules(retention={"*.audit.*": "frozen"})',
            "Rules(retention={'*.audit.*': 'frozen'}): it is a mapping of a text to 'hot' or 'warm' or 'cold'",
        ),
        Mistake("seam step not callable", 'Seam(sign="secret")', "Seam(sign='secret'): it is a function or None"),
        Mistake("seam rules class", "Seam(rules=Rules)", "Seam(rules=Rules): it is a Rules: write rules=Rules(…)"),
        Mistake("chaos", "Chaos(refuse=50)", "Chaos(refuse=50): it is a number from 0 to 1"),
        Mistake("conflicts", "Conflicts(attempts=0)", "Conflicts(attempts=0): it is a whole number, 1 or more"),
        Mistake(
            "retrylater timedelta",
            "raise RetryLater(seconds=timedelta(minutes=1))",
            "RetryLater(seconds=datetime.timedelta(seconds=60)): it is a number of seconds: write seconds=60.0",
        ),
        Mistake(
            "retrylater text",
            'raise RetryLater(seconds="60")',
            "RetryLater(seconds='60'): it is a number of seconds: write seconds=60.0",
        ),
        Mistake(
            "retrylater milliseconds",
            "raise RetryLater(seconds=1_800_000_000_000)",
            "RetryLater(seconds=1800000000000): it is a number of seconds from now, ten years at most: write seconds=60.0",
        ),
        Mistake(
            "retrylater beyond numbers",
            "raise RetryLater(seconds=10**400)",
            "RetryLater(seconds=…): it is a number of seconds from now, ten years at most: write seconds=60.0",
        ),
        Mistake(
            "retrylater true",
            "raise RetryLater(seconds=True)",
            "RetryLater(seconds=True): it is a number of seconds: write seconds=60.0",
        ),
        Mistake(
            "deadline beyond numbers",
            "Policy(deadline=10**400)",
            "it is a number of seconds above 0, 315,360,000 (ten years) at most",
        ),
        Mistake(
            "delay without end",
            "Policy(first_delay=1e300, last_delay=1e300)",
            "Policy(first_delay=1e+300): it is a number of seconds, 0 or more, 315,360,000 (ten years) at most",
        ),
        Mistake(
            "a lease of a millisecond",
            "RelaySettings(lease=0.001)",
            "RelaySettings(lease=0.001): it is a number of seconds, 1 or more",
        ),
        Mistake(
            "a region that nobody can read",
            'Settings(region="\\x00")',
            "Settings: region holds a NUL character, which databases and readers refuse",
        ),
        Mistake(
            "a region without end",
            'Settings(region="eu" * 2500)',
            "Settings: region has 5,000 bytes, the longest has 256",
        ),
        Mistake(
            "a patience without end",
            'App(orders, store="sqlite:///shop.db?patience=inf").store',
            "the SQLite store: patience=inf does not fit: seconds, 315,360,000 (ten years) at most",
        ),
        Mistake(
            "a retention without end",
            'App(orders, store="sqlite://", broker="embedded:///log.db?retention=inf").broker',
            "the embedded broker: retention=inf does not fit: seconds, 315,360,000 (ten years) at most",
        ),
        Mistake(
            "an option twice",
            'App(orders, store="sqlite:///shop.db?patience=1&patience=2").store',
            "the URL says 'patience' more than once, and could mean either: leave one out",
        ),
        Mistake(
            "an option of the broker twice",
            'App(orders, store="sqlite://", broker="embedded:///log.db?partitions=1&partitions=2").broker',
            "the URL says 'partitions' more than once, and could mean either: leave one out",
        ),
        Mistake(
            "attempts beyond numbers",
            "Policy(max_attempts=10**30)",
            "it is a whole number, 1 or more, 9,223,372,036,854,775,807 at most",
        ),
        Mistake(
            "one network as a text",
            'AsgiCorrelation(print, trusted="10.0.0.0/8")',
            "AsgiCorrelation(trusted='10.0.0.0/8'): it is a list, each a text or 'all': write trusted=['10.0.0.0/8']",
        ),
        Mistake(
            "a network that is none",
            'AsgiCorrelation(print, trusted=["10.0.0.1/8"])',
            "AsgiCorrelation: trusted has '10.0.0.1/8': 10.0.0.1/8 has host bits set: write an address, or a network as '10.0.0.0/8'",
        ),
        Mistake(
            "a level in capitals",
            'configure(level="INFO")',
            "configure(level='INFO'): it is 'debug' or 'info' or 'warning' or 'error' or 'critical'. Did you mean 'info'?",
        ),
        Mistake(
            "no line at all", "configure(repeats=0)", "configure(repeats=0): it is a whole number, 1 or more or None"
        ),
        Mistake("json for as_json", "configure(json=True)", "configure has no option 'json'. Did you mean 'as_json'?"),
        Mistake(
            "trust for trusted",
            "AsgiCorrelation(print, trust=[])",
            "AsgiCorrelation has no option 'trust'. Did you mean 'trusted'?",
        ),
        Mistake(
            "sse tenant text",
            'sse_endpoint(orders, events=[OrderPlaced], tenant="t1")',
            "sse_endpoint(tenant='t1'): it is a function",
        ),
        Mistake(
            "sse one event",
            "sse_endpoint(orders, events=OrderPlaced, tenant=str)",
            "sse_endpoint(events=OrderPlaced): it is a list, each a class: write events=[OrderPlaced]",
        ),
        Mistake(
            "sse no events",
            "sse_endpoint(orders, events=[], tenant=str)",
            "events=[] tells nobody anything: name the events that pages hear of",
        ),
        Mistake(
            "sse no event class",
            "sse_endpoint(orders, events=[int], tenant=str)",
            "int is not an event: declare it with @service.event or @service.external",
        ),
        Mistake(
            "sse option",
            "sse_endpoint(orders, events=[OrderPlaced], tenant=str, client=5)",
            "sse_endpoint has no option 'client'. Did you mean 'clients'?",
        ),
    ],
    "Services and apps": [
        Mistake("service name number", "Service(5)", "Service(name=5): it is a text: write name='5'"),
        Mistake(
            "service name capitals",
            'Service("Order Service")',
            "the service 'Order Service': 'Order Service' is not snake_case (lower-case ASCII letters, digits, single underscores, a letter first); did you mean",
        ),
        Mistake("service empty", 'Service("")', "the service '': '' is empty: give it a name, as in 'orders'"),
        Mistake(
            "service namespace dots",
            'Service("orders", namespace="com.shop")',
            "the service 'orders': 'com.shop' is not snake_case (lower-case ASCII letters, digits, single underscores, a letter first); did you mean 'com_shop'?",
        ),
        Mistake(
            "service topics",
            'Service("orders", topics="per-subject")',
            "Service(topics='per-subject'): it is 'aggregate' or 'subject'. Did you mean 'subject'?",
        ),
        Mistake("service envelope", 'Service("orders", envelope="json")', "there is no envelope 'json'."),
        Mistake("service option", 'Service("orders", team="sales")', "Service has no option 'team'."),
        Mistake(
            "service residency empty",
            'Service("orders", residency=" ")',
            "orders: residency is the name of a region, or None for anywhere, not ' '",
        ),
        Mistake("service without name", "Service()", "Service needs name too"),
        Mistake(
            "schemas number",
            'Service("orders", schemas=5)',
            "Service(schemas=5): it is a text or a Path or None: write schemas='5'",
        ),
        Mistake("app without services", "App()", "an App needs a service: App(orders, …)"),
        Mistake("app list", "App([orders])", "]): it is a Service"),
        Mistake("app class", "App(Service)", "App(services=Service): it is a Service: write services=Service(…)"),
        Mistake(
            "app store path",
            'App(orders, store=Path("shop.db"))',
            "App(store=PosixPath('shop.db')): it is a text or a CoreStore or None: write store='sqlite:///shop.db'",
        ),
        Mistake(
            "app store empty",
            'App(orders, store="")',
            "'' is no URL of a store: write sqlite:///shop.db for a file, or postgresql://user@host/shop",
        ),
        Mistake(
            "app store no url",
            'App(orders, store="shop.db")',
            "'shop.db' is no URL of a store: write sqlite:///shop.db for a file, or postgresql://user@host/shop",
        ),
        Mistake(
            "app settings dict",
            'App(orders, settings={"in_flight": 5})',
            "App(settings={'in_flight': 5}): it is a Settings or None",
        ),
        Mistake("app option", 'App(orders, database="sqlite://")', "App has no option 'database'."),
        Mistake(
            "tenant class a word",
            'App(orders, tenant_class="small")',
            "App(tenant_class='small'): it is a function or None",
        ),
        Mistake(
            "tenant class awaited",
            """\
async def size(tenant: str) -> str: ...
App(orders, tenant_class=size)""",
            "App: tenant_class is awaited by nobody: give a plain function, tenant to word",
        ),
        Mistake("app clock", "App(orders, clock=5)", "App(clock=5): it is a Clock or None"),
        Mistake(
            "app tracer_provider url",
            'App(orders, tracer_provider="http://collector:4318")',
            "App(tracer_provider='http://collector:4318'): it is a TracerProvider or None",
        ),
        Mistake(
            "running twice",
            """\
async with orders.running():
    async with orders.running(): ...""",
            "orders runs already: one running() is for all services of an App",
        ),
        Mistake(
            "run part",
            'await orders.run(only=["consumer"])',
            "run(only=['consumer']): it is a list, each 'relay' or 'consumers' or 'timers'",
        ),
        Mistake(
            "run part text",
            'await orders.run(only="relay")',
            "run(only='relay'): it is a list, each 'relay' or 'consumers' or 'timers' or 'archive': write only=['relay']",
        ),
        Mistake(
            "relay word",
            'async with orders.running(relay="logical"): ...',
            "run(relay='logical'): it is 'poll' or 'wal' or None.",
        ),
        Mistake(
            "wal embedded",
            'async with orders.running(relay="wal"): ...',
            "SQLite has no log that a relay could follow: leave --relay wal out, its relay is woken at once",
        ),
        Mistake("harness none", "async with Harness(): ...", "a Harness needs a service: Harness(orders, …)"),
        Mistake(
            "harness not services",
            "async with Harness(OrderPlaced): ...",
            "Harness(services=OrderPlaced): it is a Service",
        ),
    ],
    "Events": [
        Mistake(
            "alias on the way out alone",
            """\
import pydantic
@orders.event("order.sent.v1", key="order_id")
class OrderSent(pydantic.BaseModel):
    order_id: str
    cents: int = pydantic.Field(0, serialization_alias="amountCents")""",
            "OrderSent.cents would travel as 'amountCents' and be read as 'cents': give it one name for both ways, as in Field(alias='amountCents')",
        ),
        Mistake(
            "event without parentheses",
            """\
@orders.event
class OrderSent(Payload):
    order_id: str""",
            "@orders.event('order.sent.v1') is how it is written above the class OrderSent",
        ),
        Mistake(
            "external without parentheses",
            """\
@orders.external
class PaymentCaptured(Payload):
    order_id: str""",
            "@orders.external('other.payment.captured.v1') is how it is written above the class PaymentCaptured",
        ),
        Mistake(
            "present tense",
            'orders.event("order.send.v1")',
            "'orders.order.send.v1': 'send' is not past tense; did you mean 'sent'? An event is a fact that has happened; if this is one, say so: Service(…,",
        ),
        Mistake(
            "noun",
            'orders.event("order.creation.v1")',
            "'orders.order.creation.v1': 'creation' is not past tense. An event is a fact that has happened; if this is one, say so: Service(…,",
        ),
        Mistake(
            "no version",
            'orders.event("order.sent")',
            "'order.sent' ends in 'sent', not in a version; did you mean 'order.sent.v1'?",
        ),
        Mistake(
            "capital subject",
            'orders.event("Order.sent.v1")',
            "'Order.sent.v1': token 1 ('Order') is not snake_case (lower-case ASCII letters, digits, single underscores, a letter first); did you mean 'order'?",
        ),
        Mistake(
            "subject of another service",
            'orders.event("billing.invoice.sent.v1")',
            "'billing.invoice.sent.v1' is not a subject of the service 'orders'; write 'invoice.sent.v1' for its own facts",
        ),
        Mistake(
            "key that is no field",
            """\
@orders.event("order.sent.v1", key="orderid")
class OrderSent(Payload):
    order_id: str""",
            "OrderSent has no field 'orderid' to order by. Did you mean 'order_id'?",
        ),
        Mistake(
            "key number",
            'orders.event("order.sent.v1", key=5)',
            "Service.event(key=5): it is a text or None: write key='5'",
        ),
        Mistake(
            "retention class",
            'orders.event("order.sent.v1", retention="forever")',
            "Service.event(retention='forever'): it is 'hot' or 'warm' or 'cold'.",
        ),
        Mistake(
            "deprecated text",
            'orders.event("order.sent.v1", deprecated="2027-01-31")',
            "Service.event(deprecated='2027-01-31'): it is a day, as in date(2027, 1, 31) or None",
        ),
        Mistake(
            "unknown event option",
            'orders.event("order.sent.v1", partition_key="order_id")',
            "Service.event has no option 'partition_key'.",
        ),
        Mistake(
            "declared twice",
            """\
@orders.event("order.placed.v1")
class Other(Payload):
    x: int""",
            "orders.order.placed.v1 is declared twice:",
        ),
        Mistake(
            "event above function",
            """\
@orders.event("order.sent.v1")
def sent(order_id): ...""",
            "orders.order.sent.v1 is declared by a class that has its fields, not by",
        ),
    ],
    "Handlers": [
        Mistake(
            "on without parentheses",
            """\
@orders.on
async def handle(event: "Event[OrderPlaced]", tx: Tx) -> None: ...""",
            "@orders.on needs to know its event: write @orders.on(OrderPlaced) above handle",
        ),
        Mistake(
            "on text",
            """\
@orders.on("order.placed.v1")
async def handle(event, tx): ...""",
            "orders.on: 'order.placed.v1' is a text: give the class of the event, not its name",
        ),
        Mistake(
            "on empty",
            """\
@orders.on()
async def handle(event, tx): ...""",
            "orders.on() names no event: write orders.on(OrderPlaced), or several of them",
        ),
        Mistake(
            "on instance",
            """\
@orders.on(OrderPlaced("o1"))
async def handle(event, tx): ...""",
            "orders.on: OrderPlaced(…) is one event: give its class, OrderPlaced",
        ),
        Mistake(
            "on plain",
            """\
@orders.on(Plain)
async def handle(event, tx): ...""",
            "orders.on: Plain is not an event: declare it with @service.event or @service.external",
        ),
        Mistake(
            "on list",
            """\
@orders.on([OrderPlaced])
async def handle(event, tx): ...""",
            "orders.on: a list is not the class of an event: give the classes one by one, (OrderPlaced)",
        ),
        Mistake(
            "policy dict",
            """\
@orders.on(OrderPlaced, policy={"max_attempts": 3})
async def handle(event, tx): ...""",
            "Service.on(policy={'max_attempts': 3}): it is a Policy or None",
        ),
        Mistake(
            "policy class",
            """\
@orders.on(OrderPlaced, policy=Policy)
async def handle(event, tx): ...""",
            "Service.on(policy=Policy): it is a Policy or None: write policy=Policy(…)",
        ),
        Mistake(
            "unknown on option",
            """\
@orders.on(OrderPlaced, retries=3)
async def handle(event, tx): ...""",
            "Service.on has no option 'retries'.",
        ),
        Mistake(
            "consumer with blank",
            """\
@orders.on(OrderPlaced, consumer="my consumer")
async def handle(event, tx): ...""",
            "consumer='my consumer': it is a name of letters, digits and `_.-`, as in 'invoices'",
        ),
        Mistake(
            "consumer empty",
            """\
@orders.on(OrderPlaced, consumer="")
async def handle(event, tx): ...""",
            "consumer='': it is a name of letters, digits and `_.-`, as in 'invoices'",
        ),
        Mistake(
            "reads text",
            """\
@orders.on(OrderPlaced, reads="order_id")
async def handle(event, tx): ...""",
            "Service.on(reads='order_id'): it is a list, each a text or None: write reads=['order_id']",
        ),
        Mistake(
            "reads unknown",
            """\
@orders.on(OrderPlaced, reads=["oder_id"])
async def handle(event, tx): ...""",
            "reads names 'oder_id', which is no field of orders.order.placed.v1. Did you mean 'order_id'?",
        ),
        Mistake(
            "publishes class not list",
            """\
@orders.on(OrderPlaced, publishes=OrderPaid)
async def handle(event, tx): ...""",
            "Service.on(publishes=OrderPaid): it is a list, each a class: write publishes=[OrderPaid]",
        ),
        Mistake(
            "two handlers",
            """\
@orders.on(OrderPlaced)
async def handle(event, tx): ...
@orders.on(OrderPlaced)
async def again(event, tx): ...""",
            "orders.order.placed.v1 is handled by None.handle in the consumer 'orders' already: give None.again a consumer of its own, as in on(…,",
        ),
        Mistake(
            "plain function awaits",
            """\
@orders.on(OrderPlaced)
def handle(event, tx: Tx): ...""",
            "None.handle is a plain function and cannot await a Tx: make it async, or let its second argument be a connection or a session, annotated as such",
        ),
        Mistake(
            "yields",
            """\
@orders.on(OrderPlaced)
async def handle(event, tx):
    yield OrderPaid("o1")""",
            "None.handle yields: a handler returns what it publishes, one event or a list of them",
        ),
        Mistake(
            "payload annotated",
            """\
@orders.on(OrderPlaced)
async def handle(order: OrderPlaced, tx: Tx): ...""",
            "None.handle: its first argument is annotated as OrderPlaced, and will be the event: write `event: Event[OrderPlaced]`; its payload is event.data",
        ),
        Mistake(
            "arguments swapped",
            """\
@orders.on(OrderPlaced)
async def handle(tx: Tx, event: Event): ...""",
            "None.handle: its first argument is annotated as Tx, and will be the event: write `event: Event[OrderPlaced]`; its payload is event.data",
        ),
        Mistake(
            "other event annotated",
            """\
@orders.on(OrderPlaced)
async def handle(event: Event[OrderPaid], tx: Tx): ...""",
            "None.handle is annotated for OrderPaid, and is run for OrderPlaced: write Event[OrderPlaced]",
        ),
        Mistake(
            "keyword only",
            """\
@orders.on(OrderPlaced)
async def handle(event, *, tx: Tx): ...""",
            "None.handle is called with its arguments by place: leave `*` and `**` out of its signature",
        ),
        Mistake(
            "no arguments",
            """\
@orders.on(OrderPlaced)
async def handle(): ...""",
            "None.handle takes 0 arguments: a handler takes the event and, if it writes, a Tx",
        ),
        Mistake(
            "three arguments",
            """\
@orders.on(OrderPlaced)
async def handle(event, tx, session): ...""",
            "None.handle takes 3 arguments: a handler takes the event and, if it writes, a Tx",
        ),
        Mistake(
            "above class",
            """\
@orders.on(OrderPlaced)
class Handler: ...""",
            "is no function: decorate one, `async def` or `def`",
        ),
        Mistake(
            "calling not callable",
            """\
@orders.on(OrderPlaced, calling="https://vendor")
async def handle(event, tx, answer): ...""",
            "Service.on(calling='https://vendor'): it is a function or None",
        ),
        Mistake(
            "setup with parentheses",
            """\
@orders.setup()
async def tables(tx): ...""",
            "@Service.setup is written without parentheses, above a function",
        ),
        Mistake(
            "setup plain",
            """\
@orders.setup
def tables(tx): ...""",
            "orders.setup takes an async function of a Tx: `async def tables(tx: Tx)`",
        ),
    ],
    "Publishing": [
        Mistake(
            "publish class",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced)""",
            "OrderPlaced is a class: publish a fact, OrderPlaced(…)",
        ),
        Mistake(
            "publish text",
            """\
async with orders.transaction() as tx:
    tx.publish("order.placed.v1")""",
            "a text is not an event: declare a class with @service.event, and publish one of it",
        ),
        Mistake(
            "publish dict",
            """\
async with orders.transaction() as tx:
    tx.publish({"order_id": "o1"})""",
            "a dict is not an event: declare a class with @service.event, and publish one of it",
        ),
        Mistake(
            "publish None",
            """\
async with orders.transaction() as tx:
    tx.publish(None)""",
            "None is not an event: publish one, as in tx.publish(OrderPlaced(…))",
        ),
        Mistake(
            "publish undeclared",
            """\
async with orders.transaction() as tx:
    tx.publish(Plain())""",
            "Plain is not an event: declare it with @service.event or @service.external",
        ),
        Mistake(
            "publish list",
            """\
async with orders.transaction() as tx:
    tx.publish([OrderPlaced("o1")])""",
            "a list is not an event: declare a class with @service.event, and publish one of it",
        ),
        Mistake(
            "wrong type in payload",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced(order_id=5))""",
            "not a valid OrderPlaced: Expected `str`, got `int` - at `$.order_id`",
        ),
        Mistake(
            "value that is computed again",
            """\
@orders.event("order.sent.v1", key="order_id")
@dataclasses.dataclass
class OrderSent:
    order_id: str
    cents: int
    def __post_init__(self): self.cents = round(self.cents * 1.2)
async with orders.transaction() as tx:
    tx.publish(OrderSent("o1", 10_000))""",
            "not a valid OrderSent: `$.cents` is 12000 here, and readers would hear 14400",
        ),
        Mistake(
            "date in a field of any type",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more={"until": date(2026, 1, 1)}))""",
            "`$.more.until` is datetime.date(2026, 1, 1) here, and readers would hear '2026-01-01'",
        ),
        Mistake(
            "nan",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", total=math.nan))""",
            "not a valid OrderPlaced: nan at `$.total` is no number that JSON can say: leave it out, or make the field one that may be None",
        ),
        Mistake(
            "inf inside",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more={"lines": [1.5, math.inf]}))""",
            "not a valid OrderPlaced: inf at `$.more.lines[1]` is no number that JSON can say: leave it out, or make the field one that may be None",
        ),
        Mistake(
            "huge int",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more=2**70))""",
            "the data of orders.order.placed.v1 cannot be published, integer: 1180591620717411303424 does not fit in 64 bits; send it as text",
        ),
        Mistake(
            "surrogate",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more="\\ud800"))""",
            "not a valid OrderPlaced: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed",
        ),
        Mistake(
            "nul",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more="\\x00"))""",
            "the data of orders.order.placed.v1 cannot be published, nul: an escaped NUL character",
        ),
        Mistake(
            "empty key",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced(""))""",
            "orders.order.placed.v1: the key field 'order_id' must be a text or a whole number, not ''",
        ),
        Mistake(
            "too large",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more="x" * 300_000))""",
            "orders.order.placed.v1 (its data) is 300,040 bytes, the limit is 262,144: store the large part elsewhere and publish a reference to it",
        ),
        Mistake(
            "object inside",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1", more=object()))""",
            "not a valid OrderPlaced: Encoding objects of type object is unsupported",
        ),
        Mistake(
            "tenant number",
            """\
async with orders.transaction(tenant=5) as tx:
    tx.publish(OrderPlaced("o1"))""",
            "nothing can be published so: tenant=5 is int, not a text: write tenant='5'",
        ),
        Mistake(
            "tenant uuid",
            """\
async with orders.transaction(tenant=uuid.UUID(int=7)) as tx:
    tx.publish(OrderPlaced("o1"))""",
            "nothing can be published so: tenant=UUID('00000000-0000-0000-0000-000000000007') is UUID, not a text: write",
        ),
        Mistake(
            "tenant empty",
            """\
async with orders.transaction(tenant="") as tx:
    tx.publish(OrderPlaced("o1"))""",
            "every event needs a tenant: pass tenant=…, that of whoever it is about",
        ),
        Mistake(
            "tenant platform",
            """\
async with orders.transaction(tenant="platform") as tx:
    tx.publish(OrderPlaced("o1"))""",
            "rule 'platform': orders.order.placed.v1 belongs to no tenant here, and is not among the facts that may: list it in Rules(platform=[…]), as the answer",
        ),
        Mistake(
            "idempotency number",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), idempotency_key=17)""",
            "this event cannot be published: idempotency_key=17 is int, not a text: write idempotency_key='17'",
        ),
        Mistake(
            "idempotency empty",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), idempotency_key="")""",
            "idempotency_key of an event may not be empty: leave it out",
        ),
        Mistake(
            "actor text",
            'async with orders.transaction(actor="ann") as tx: ...',
            "nothing can be published so: actor='ann' is no Actor: write actor=Actor(kind='user', id='…')",
        ),
        Mistake("actor id number", 'Actor(kind="user", id=5)', "an actor has texts: write Actor(…, id='5'), not 5"),
        Mistake(
            "correlation number",
            "async with orders.transaction(correlation=5) as tx: ...",
            "nothing can be published so: correlation=5 is int, not a text: write correlation='5'",
        ),
        Mistake(
            "after timedelta",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), after=timedelta(hours=1))""",
            "publish(after=datetime.timedelta(seconds=3600)): it is a number: write after=3600.0",
        ),
        Mistake(
            "after text",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), after="1h")""",
            "publish(after='1h'): it is a number: write after=3600.0",
        ),
        Mistake(
            "timer without after",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), timer="remind")""",
            "timer='remind' names a timer that has no time: give after=… too, in seconds",
        ),
        Mistake(
            "timer number",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), after=60, timer=5)""",
            "timer=5 is int, not a text: write timer='5'",
        ),
        Mistake(
            "with",
            """\
with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"))""",
            "a transaction is begun with `async with`; code without an event loop begins its own, and publishes with `outbox.add_now(…)` or `with outbox.joined(…)`",
        ),
        Mistake(
            "other service event",
            """\
other = Service("billing")
@other.event("invoice.sent.v1")
class InvoiceSent(Payload):
    number: int
async with orders.transaction() as tx:
    tx.publish(InvoiceSent(1))""",
            "billing.invoice.sent.v1 belongs to the service 'billing': 'orders' may read it, not publish it",
        ),
        Mistake(
            "record no fact",
            'await orders.record("DELETE FROM x", ())',
            "there is no fact to record: give one after the parameters, or use a transaction",
        ),
        Mistake(
            "record class",
            'await orders.record("SELECT 1", (), OrderPlaced)',
            "OrderPlaced is a class: publish a fact, OrderPlaced(…)",
        ),
        Mistake(
            "add to nothing", 'await orders.outbox.add(None, OrderPlaced("o1"))', "cannot join a builtins.NoneType:"
        ),
        Mistake(
            "add to text",
            'orders.outbox.add_now("sqlite:///shop.db", OrderPlaced("o1"))',
            "cannot join a builtins.str:",
        ),
        Mistake(
            "add_now to sqlite other file",
            'orders.outbox.add_now(sqlite3.connect(":memory:"), OrderPlaced("o1"))',
            "the database has no tables of Posthouse, and a transaction of yours makes none: run `posthouse db upgrade TARGET`, your module:service",
        ),
        Mistake(
            "add_now forgot connection",
            'orders.outbox.add_now(OrderPlaced("o1"))',
            "cannot join a tests.misuse.scene.namespace.<locals>.OrderPlaced:",
        ),
        Mistake(
            "add class",
            """\
connection = sqlite3.connect(":memory:")
await orders.outbox.add(connection, OrderPlaced)""",
            "OrderPlaced is a class: publish a fact, OrderPlaced(…)",
        ),
        Mistake(
            "key for two",
            'await orders.outbox.add(sqlite3.connect(":memory:"), OrderPlaced("o1"), OrderPlaced("o2"), idempotency_key="k")',
            "an idempotency key stands for one fact: add the others in a call of their own",
        ),
        Mistake(
            "saga not Saga",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout:
    order_id: str""",
            "is no saga: derive it from posthouse.Saga",
        ),
        Mistake(
            "correlated for nobody",
            """\
with correlated(tenant=""):
    pass""",
            "every event needs a tenant: pass tenant=…, that of whoever it is about",
        ),
        Mistake(
            "correlated by a number",
            """\
with correlated(17):
    pass""",
            "correlation=17 is int, not a text: write correlation='17'",
        ),
        Mistake(
            "tenant of a plain dependency",
            """\
def tenant_of_the_request():  # as FastAPI runs a dependency
    with correlated(tenant="t1"):
        yield
await asyncio.to_thread(next, tenant_of_the_request())""",
            "reaches no code outside of it, and events would have the wrong tenant. Write `async def` instead of `def`",
        ),
    ],
    "Transactions": [
        Mistake(
            "publish after",
            """\
async with orders.transaction() as tx: ...
tx.publish(OrderPlaced("o1"))""",
            "the block of this transaction was left: what is said here now would never be sent. Do it inside the block, or begin another transaction",
        ),
        Mistake(
            "execute after",
            """\
async with orders.transaction() as tx: ...
await tx.execute("CREATE TABLE mine (id INTEGER)")""",
            "the block of this transaction was left: what is said here now would never be sent. Do it inside the block, or begin another transaction",
        ),
        Mistake(
            "cancel after",
            """\
async with orders.transaction() as tx: ...
await tx.cancel("remind")""",
            "the block of this transaction was left: what is said here now would never be sent. Do it inside the block, or begin another transaction",
        ),
        Mistake(
            "savepoint after",
            """\
async with orders.transaction() as tx: ...
async with tx.savepoint(): ...""",
            "the block of this transaction was left: what is said here now would never be sent. Do it inside the block, or begin another transaction",
        ),
        Mistake(
            "a timer with a long name",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), after=60, timer="x" * 300_000)""",
            "timer has 300,000 bytes, the longest has 1,024",
        ),
        Mistake(
            "a timer without end",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"), after=1e300)""",
            "publish(after=1e+300): it is a number, 315,360,000 (ten years) at most",
        ),
        Mistake(
            "no number as a key",
            """\
@orders.event("price.set.v1", key="id")
class Prices(Payload):
    id: str
    at: dict[float, int]
async with orders.transaction() as tx:
    tx.publish(Prices("p1", {math.nan: 1}))""",
            "is no number that JSON can say",
        ),
        Mistake(
            "a task that outlives the block",
            """\
async def audit(tx):
    async with tx.savepoint():
        await asyncio.sleep(1)
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"))
    task = asyncio.create_task(audit(tx))
    await asyncio.sleep(0.01)""",
            "the block of this transaction was left while another task still worked in it, so that it is rolled back: await inside of the block whatever you give the transaction to",
        ),
        Mistake(
            "not awaited",
            """\
async with orders.transaction() as tx:
    tx.execute("CREATE TABLE mine (id INTEGER)")
    tx.publish(OrderPlaced("o1"))""",
            "1 of the statements of this transaction never ran, so that it is rolled back: write `await tx.execute(…)`",
        ),
        Mistake(
            "no block",
            """\
tx = orders.transaction()
tx.publish(OrderPlaced("o1"))""",
            "this is a block, not a transaction yet: write `async with orders.transaction() as tx:` and use tx inside",
        ),
        Mistake(
            "awaited block",
            "tx = await orders.transaction()",
            "this is a block, not a transaction yet: write `async with orders.transaction() as tx:` and use tx inside",
        ),
        Mistake(
            "no such table",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"))
    await tx.execute("INSERT INTO invoice VALUES (1)")""",
            "running 'INSERT INTO invoice VALUES (1)': no such table: invoice",
        ),
        Mistake(
            "bad params",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"))
    await tx.execute("SELECT :name", {"nam": 1})""",
            ":name has no value. Did you mean 'nam'? 'nam' is not in the statement: write it :nam, or leave it out. Did you mean 'name'?",
        ),
        Mistake(
            "COMMIT inside",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced("o1"))
    await tx.execute("COMMIT")""",
            "COMMIT is not yours to call: the transaction commits when its block ends and rolls back when an exception leaves it",
        ),
        Mistake(
            "sql not text",
            """\
async with orders.transaction() as tx:
    await tx.execute(5)""",
            "execute runs a statement that is text, not 5; for objects of a library use its session",
        ),
        Mistake(
            "two statements",
            """\
async with orders.transaction() as tx:
    await tx.execute("SELECT 1; SELECT 2")""",
            "running 'SELECT 1; SELECT 2': You can only execute one statement at a time.",
        ),
    ],
    "Sagas, aggregates, projections, versions": [
        Mistake(
            "saga without parentheses",
            """\
@orders.saga
class Checkout(Saga):
    order_id: str""",
            "@orders.saga('checkout', correlate='order_id') is how it is written above the class Checkout",
        ),
        Mistake(
            "@step bare",
            """\
class Checkout(Saga):
    order_id: str
    @step
    def paid(self, event, turn): ...""",
            "@step needs to know its event: write @step(OrderPlaced) above paid",
        ),
        Mistake(
            "@on with text",
            """\
class Checkout(Saga):
    order_id: str
    @on("order.paid.v1")
    def paid(self, event, turn): ...""",
            "on: 'order.paid.v1' is a text: give the class of the event, not its name",
        ),
        Mistake(
            "@deadline bare",
            """\
class Checkout(Saga):
    order_id: str
    @deadline
    def expired(self, turn): ...""",
            "deadline(seconds=expired): it is a number: write @deadline(600) above the method",
        ),
        Mistake(
            "@deadline timedelta",
            """\
class Checkout(Saga):
    order_id: str
    @deadline(timedelta(hours=1))
    def expired(self, turn): ...""",
            "deadline(seconds=datetime.timedelta(seconds=3600)): it is a number: write seconds=3600.0",
        ),
        Mistake(
            "@deadline of working days without a calendar",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @deadline(working_days=3)
    def expired(self, turn): ...""",
            "expired counts working time, and there is no calendar: name one, @deadline(…, calendar=…), or one for the service",
        ),
        Mistake(
            "@deadline() set without a time",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): turn.set(self.expired)
    @deadline()
    def expired(self, turn): ...
async with orders.transaction() as tx:
    await orders.start_saga(tx, Checkout(order_id="1"))""",
            "Checkout.begin: turn.set(expired) says no time, and @deadline() does not: add after=… or at=…",
        ),
        Mistake(
            "@deadline of two times",
            "deadline(60, working_days=3)",
            "@deadline says one time: write @deadline(600), in seconds, @deadline(working_days=3) or @deadline(working_hours=8)",
        ),
        Mistake(
            "a day off by its short name",
            'WorkWeek(tz="Asia/Kabul", off=("fri",))',
            "WorkWeek(off=('fri',)): it is a tuple, each 'monday' or 'tuesday'",
        ),
        Mistake(
            "a time zone that there is not",
            'WorkWeek(tz="Kabul", off=("friday",))',
            "WorkWeek(tz='Kabul'): there is no such time zone. Did you mean 'Asia/Kabul'?",
        ),
        Mistake(
            "a moment without a time zone",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced(order_id="1"), at=datetime(2027, 1, 31, 12, 0))""",
            "publish(at=2027-01-31 12:00:00) has no time zone, so that nobody knows which moment it is: write at=datetime(…, tzinfo=ZoneInfo(",
        ),
        Mistake(
            "two times at once",
            """\
async with orders.transaction() as tx:
    tx.publish(OrderPlaced(order_id="1"), after=60, at=datetime(2027, 1, 31, 12, 0, tzinfo=UTC))""",
            "publish(after=60, at=…) says two times: leave one out",
        ),
        Mistake(
            "a schedule with seconds",
            """\
@orders.every("0 0 6 * * *")
async def sweep(run, tx): ...""",
            "orders.every('0 0 6 * * *'): it has 6 fields and needs five, minute, hour, day-of-month, month, day-of-week: seconds are not read",
        ),
        Mistake(
            "a schedule by a nickname",
            """\
@orders.every("@daily")
async def sweep(run, tx): ...""",
            "orders.every('@daily'): nicknames are not read: write '0 0 * * *'",
        ),
        Mistake(
            "an hour that there is not",
            """\
@orders.every("0 24 * * *")
async def sweep(run, tx): ...""",
            "orders.every('0 24 * * *'): its hour, '24', cannot be",
        ),
        Mistake(
            "a day that never comes",
            """\
@orders.every("0 6 30 2 *")
async def sweep(run, tx): ...""",
            "orders.every('0 6 30 2 *'): it names a moment that never comes",
        ),
        Mistake(
            "missed misspelled",
            """\
@orders.every("0 6 * * *", missed="one")
async def sweep(run, tx): ...""",
            "Service.every(missed='one'): it is 'once' or 'all' or 'skip'. Did you mean 'once'?",
        ),
        Mistake(
            "a schedule without a transaction to await",
            """\
@orders.every("0 6 * * *")
def sweep(run: Run, tx: Tx): ...""",
            "sweep is a plain function and cannot await a Tx: make it async",
        ),
        Mistake(
            "@undo bare",
            """\
class Checkout(Saga):
    order_id: str
    @undo
    def refund(self, turn): ...""",
            "@undo names the step that it undoes: write @undo(charge) above the method, not 'refund'",
        ),
        Mistake(
            "@step after a text",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced, after="paid")
    def sent(self, event, turn): ...""",
            "@step names steps in after: write them as they are called above, without quotes, not 'paid'",
        ),
        Mistake(
            "@step after no step",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @deadline(60)
    def slow(self, turn): ...
    @step(OrderPlaced, after=slow)
    def sent(self, event, turn): ...""",
            "Checkout: sent waits for slow, which is no step of this saga. Known: begin, sent.",
        ),
        Mistake(
            "@join of one",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced)
    def paid(self, event, turn): ...
    @join(paid)
    def confirm(self, turn): ...""",
            "@join names the steps that it waits for, two or more: @join(room_committed, paid)",
        ),
        Mistake(
            "@undo without the event of its step",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced)
    def paid(self, event, turn): ...
    @undo(paid)
    def refund(self, turn): ...""",
            "Checkout: refund(self, turn) is marked with @undo and takes (self, event, turn), as paid does",
        ),
        Mistake(
            "step calling what it calls",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced, calling="https://bank.example/payments")
    def paid(self, event, turn, answer): ...""",
            "@step(calling='https://bank.example/payments'): it is a function that takes the event, `async def` or `def`",
        ),
        Mistake(
            "step calling without the answer",
            """\
def pay(event): ...
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced, calling=pay)
    def paid(self, event, turn): ...""",
            "Checkout: paid(self, event, turn) is marked with @step and takes (self, event, turn, answer)",
        ),
        Mistake(
            "step calling for what cannot be kept",
            """\
import threading
def pay(event) -> threading.Thread: ...
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced, calling=pay)
    def paid(self, event, turn, thread: threading.Thread): ...""",
            "Checkout: paid is answered Thread, which cannot be kept for its undo: let pay return text, numbers, a Payload or a "
            "dataclass of them",
        ),
        Mistake(
            "undo of a call without the answer",
            """\
def pay(event): ...
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced, calling=pay)
    def paid(self, event, turn, answer): ...
    @undo(paid)
    def refund(self, event, turn): ...""",
            "Checkout: refund(self, event, turn) is marked with @undo and takes (self, event, turn, answer), as paid does",
        ),
        Mistake(
            "policy of a step as a number",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced, policy=3)
    def paid(self, event, turn): ...""",
            "@step(policy=3): write policy=Policy(max_attempts=3)",
        ),
        Mistake(
            "step annotated with the payload",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced)
    def placed(self, event: OrderPlaced, turn: Turn): ...""",
            "Checkout: placed is given Event[OrderPlaced], and its payload is event.data: write `event: Event[OrderPlaced]`",
        ),
        Mistake(
            "@undo unless without until",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced)
    def paid(self, event, turn): ...
    @undo(paid, unless=OrderPaid)
    def refund(self, event, turn): ...""",
            "@undo(unless=OrderPaid) is the other answer to the event that it waits for: name that one with until=…",
        ),
        Mistake(
            "@undo same without until",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced)
    def paid(self, event, turn): ...
    @undo(paid, same="payment_id")
    def refund(self, event, turn): ...""",
            "@undo(same='payment_id') is about the event that it waits for: name that one with until=…",
        ),
        Mistake(
            "@undo same that a fact does not have",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced)
    def paid(self, event, turn): ...
    @undo(paid, until=OrderPaid, same="payment_id")
    def refund(self, event, turn): ...""",
            "Checkout: refund: same='payment_id' is no field of OrderPlaced.",
        ),
        Mistake(
            "@late beside late=ignore",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced, late="ignore")
    def paid(self, event, turn): ...
    @late(OrderPlaced)
    def paid_late(self, event, turn): ...""",
            "Checkout: paid_late takes OrderPlaced late, and paid says late='ignore': leave one of them out",
        ),
        Mistake(
            "@step early_within as text",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced, early_within="1h")
    def paid(self, event, turn): ...""",
            "step(early_within='1h'): it is a number",
        ),
        Mistake(
            "saga early_within below 0",
            """\
@orders.saga("checkout", correlate="order_id", early_within=-1)
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...""",
            "Checkout: early_within must be above 0 seconds, not -1",
        ),
        Mistake(
            "saga no correlate",
            """\
@orders.saga("checkout", correlate="oder_id")
class Checkout(Saga):
    order_id: str
    @starts
    def begin(self, turn): ...""",
            "Checkout: it has no field 'oder_id' to be found by. Did you mean 'order_id'?",
        ),
        Mistake(
            "saga no starts",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str""",
            "Checkout: one method is marked with @starts, not 0",
        ),
        Mistake(
            "field was empty",
            """\
class Checkout(Saga):
    order_id: str
    score: int = field(was="", default=0)""",
            "field(was=''): it is the name that the field had, as in field(was='points')",
        ),
        Mistake(
            "saga old name kept",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    points: int = 0
    score: int = field(was="points", default=0)
    @starts
    def begin(self, turn): ...""",
            "Checkout: score was 'points', and there is a field that is stored under that name: give the old name one owner",
        ),
        Mistake(
            "saga forbids unknown fields",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga, forbid_unknown_fields=True):
    order_id: str
    @starts
    def begin(self, turn): ...""",
            "Checkout: its state is stored whole and by name, for the release before and the next one: leave forbid_unknown_fields=True out",
        ),
        Mistake(
            "saga index one text",
            """\
@orders.saga("checkout", correlate="order_id", index="order_id")
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "Service.saga(index='order_id'): it is a list, each a text: write index=['order_id']",
        ),
        Mistake(
            "saga index of no field",
            """\
@orders.saga("checkout", correlate="order_id", index=("customr_id",))
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "Checkout: index names 'customr_id', which is no field of it.",
        ),
        Mistake(
            "saga index of its id",
            """\
@orders.saga("checkout", correlate="order_id", index=("order_id",))
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "Checkout: index names 'order_id', which is its id: it is found by that already",
        ),
        Mistake(
            "saga index of a number with a point",
            """\
@orders.saga("checkout", correlate="order_id", index=("paid_at",))
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "index names 'paid_at', which is float: text, whole numbers, UUIDs and dates are indexed",
        ),
        Mistake(
            "saga again after no end",
            """\
@orders.saga("checkout", correlate="order_id", again=("running",))
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "Service.saga(again=('running',)): it is a list, each ",
        ),
        Mistake(
            "saga operator without a name",
            """\
@orders.saga("checkout", correlate="order_id", operator="")
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...""",
            "Checkout: operator names the role of those who decide when it rests, as in operator='claims-desk'",
        ),
        Mistake(
            "@step by nobody",
            """\
@orders.saga("checkout", correlate="order_id")
class Checkout(Saga):
    order_id: str
    paid_at: float = 0.0
    @starts
    def begin(self, turn): ...
    @step(OrderPlaced, by="")
    def paid(self, event, turn): ...""",
            "Checkout: paid: by names the role of those who do it, as in by='claims-manager'",
        ),
        Mistake(
            "@step by a class",
            """\
class Checkout(Saga):
    order_id: str
    @step(OrderPlaced, by=OrderPlaced)
    def paid(self, event, turn): ...""",
            "step(by=OrderPlaced): it is ",
        ),
        Mistake(
            "start undeclared saga",
            """\
class Checkout(Saga):
    order_id: str
async with orders.transaction() as tx:
    await orders.start_saga(tx, Checkout(order_id="o1"))""",
            "Checkout is no saga of orders: declare it with @orders.saga(…, correlate=…)",
        ),
        Mistake(
            "aggregate no events",
            'orders.aggregate("order", initial=int, evolve=max, events=[])',
            "aggregate 'order': it has no events: name the classes in events=(…)",
        ),
        Mistake(
            "aggregate events class",
            'orders.aggregate("order", initial=int, evolve=max, events=OrderPlaced)',
            "Service.aggregate(events=OrderPlaced): it is a list, each a class: write events=[OrderPlaced]",
        ),
        Mistake(
            "aggregate initial value",
            'orders.aggregate("order", initial=0, evolve=max, events=[OrderPlaced])',
            "Service.aggregate(initial=0): it is a function",
        ),
        Mistake(
            "aggregate snapshot 0",
            'orders.aggregate("order", initial=int, evolve=max, events=[OrderPlaced], snapshot_every=0)',
            "aggregate 'order': snapshot_every must be at least 1, not 0: leave it out for no snapshots",
        ),
        Mistake(
            "aggregate conflicts number",
            'orders.aggregate("order", initial=int, evolve=max, events=[OrderPlaced], conflicts=5)',
            "Service.aggregate(conflicts=5): it is a Conflicts or None",
        ),
        Mistake(
            "aggregate delete lambda",
            'orders.aggregate("order", initial=int, evolve=max, events=[OrderPlaced], delete=lambda count: None)',
            "aggregate 'order': delete= says a last fact, by which whoever reads the others hears of it: let None.<lambda> be annotated with the one event that it returns, one of OrderPlaced",
        ),
        Mistake(
            "delete undeclared",
            """\
book = orders.aggregate("order", initial=int, evolve=max, events=[OrderPlaced])
async with orders.transaction() as tx:
    await book.delete(tx, "o1")""",
            "aggregate 'order' says nothing of deletion, so nobody who reads its events would hear of one: declare it with delete=, a decision that returns the last fact",
        ),
        Mistake(
            "append again to what is there",
            """\
book = orders.aggregate("order", initial=int, evolve=max, events=[OrderPlaced])
async with orders.transaction() as tx:
    await book.append(tx, "o1", [OrderPlaced("o1")], expected="again")""",
            "order 'o1' of tenant 'default' was not deleted, so that it cannot begin again: say another expected=…",
        ),
        Mistake(
            "projection name",
            'orders.projection("Orders By Day")',
            "projection 'Orders By Day': use lower-case letters, digits and underscores, as its tables are called after it: 'Orders By Day'",
        ),
        Mistake(
            "projection lag",
            'orders.projection("by_day", lag_budget="5s")',
            "Service.projection(lag_budget='5s'): it is a number: write lag_budget=5.0",
        ),
        Mistake(
            "projection version",
            'orders.projection("by_day", version=0)',
            "projection 'by_day': version=0: versions begin at 1",
        ),
        Mistake(
            "projection publishes class",
            'orders.projection("by_day", publishes=OrderPaid)',
            "Service.projection(publishes=OrderPaid): it is a list, each a class: write publishes=[OrderPaid]",
        ),
        Mistake(
            "swapped without a swap",
            """\
by_day = orders.projection("by_day")
@by_day.swapped
async def tell(model): ...""",
            "projection 'by_day': None.tell is to be an async function of a Model and a Swap",
        ),
        Mistake(
            "projection on bare",
            """\
by_day = orders.projection("by_day")
@by_day.on
async def count(event, model): ...""",
            "@by_day.on needs to know its event: write @by_day.on(OrderPlaced) above count",
        ),
        Mistake(
            "projection plain",
            """\
by_day = orders.projection("by_day")
@by_day.on(OrderPlaced)
def count(event, model): ...""",
            "projection 'by_day': None.count is a plain function: make it async, so that it can await its model",
        ),
        Mistake(
            "upcast undeclared",
            "orders.upcast(Plain, to=OrderPlaced)(lambda old: old)",
            "Plain is not an event: declare it with @service.event or @service.external",
        ),
        Mistake(
            "flow unknown",
            'orders.flow("order", starts=OrderPlaced, then=OrderPaid)',
            "Service.flow(then=OrderPaid): it is a list, each a class: write then=[OrderPaid]",
        ),
    ],
    "URLs": [
        Mistake(
            "app store mysql",
            'App(orders, store="mysql://root@localhost/shop")',
            "no store is in MySQL: events are kept in your own database, which is PostgreSQL or SQLite here",
        ),
        Mistake(
            "app two same",
            'App(orders, orders, store="sqlite://"); await app_of(orders).open()',
            "2 of the services of one App have the service 'orders': rename one, or give each an App with a store of its own",
        ),
        Mistake(
            "store is broker",
            'App(orders, store="nats://localhost:4222")',
            "nats:// is a broker, not a store: give it as broker=…; a store is sqlite:/// or postgresql://",
        ),
        Mistake(
            "store typo",
            'App(orders, store="postgrsql://localhost/shop")',
            "no store is called 'postgrsql' in 'postgrsql://localhost/shop'. Did you mean 'postgresql'?",
        ),
        Mistake(
            "store mongodb",
            'App(orders, store="mongodb://localhost/shop")',
            "no store is in MongoDB: events are kept in your own database, which is PostgreSQL or SQLite here",
        ),
        Mistake(
            "broker no url",
            'App(orders, broker="localhost:9092")',
            "'localhost:9092' is no URL of a broker: write nats://host:4222, postgresql://user@host/shop or embedded:///log.db",
        ),
        Mistake(
            "broker sqlite",
            'App(orders, broker="sqlite:///log.db")',
            "sqlite:// is a store; the broker in a file is embedded:///log.db",
        ),
        Mistake(
            "broker amqp",
            'App(orders, broker="amqp://guest@localhost")',
            "amqp:// is RabbitMQ: write rabbitmq://user:…@host:5672/vhost",
        ),
        Mistake(
            "broker typo",
            'App(orders, broker="kafak://localhost:9092")',
            "no broker is called 'kafak' in 'kafak://localhost:9092'. Did you mean 'kafka'?",
        ),
        Mistake(
            "broker option",
            'App(orders, store="sqlite://", broker="embedded:///log.db?retntion=60").broker',
            "the embedded broker has no option 'retntion'. Did you mean 'retention'?",
        ),
        Mistake(
            "broker option value",
            'App(orders, store="sqlite://", broker="embedded:///log.db?partitions=many").broker',
            "an option of the embedded broker's URL does not fit: Expected `int`, got `str` - at `$.partitions`",
        ),
        Mistake(
            "nats option",
            'App(orders, store="sqlite://", broker="nats://localhost?replica=3").broker',
            "the nats broker has no option 'replica'. Did you mean 'replicas'?",
        ),
        Mistake(
            "redis option",
            'App(orders, store="sqlite://", broker="redis://localhost?ttl=3").broker',
            "the redis broker has no option 'ttl'.",
        ),
        Mistake(
            "kafka option",
            'App(orders, store="sqlite://", broker="kafka://localhost:9092?replicas=x").broker',
            "an option of the kafka broker's URL does not fit: Expected `int`, got `str` - at `$.replicas`",
        ),
        Mistake(
            "sqs",
            'App(orders, store="sqlite://", broker="sqs://").broker',
            "'sqs:' names no region: write sqs://eu-central-1",
        ),
        Mistake(
            "pubsub",
            'App(orders, store="sqlite://", broker="pubsub://").broker',
            "'pubsub:' names no project: write pubsub://my-project",
        ),
        Mistake(
            "rabbitmq option",
            'App(orders, store="sqlite://", broker="rabbitmq://localhost?vhost=a").broker',
            "the rabbitmq broker has no option 'vhost'.",
        ),
        Mistake(
            "postgres broker option",
            'App(orders, store="sqlite://", broker="postgresql://localhost/shop?partition=4").broker',
            "the postgresql broker has no option 'partition'. Did you mean 'partitions'?",
        ),
        Mistake(
            "port no number",
            'App(orders, store="postgresql://localhost:port/shop")',
            "the postgresql URL names a port that is no number, or no server at all: a `/`, `?`, `#`, `@`, `:`, `[` or blank in a user or a password is written as",
        ),
        Mistake(
            "sync option",
            'App(orders, store="sqlite:///shop.db?synchronous=OFF").store',
            "the SQLite store: synchronous=OFF does not fit: Invalid enum value 'OFF'",
        ),
        Mistake(
            "db unknown scheme",
            "posthouse db status mysql://root@localhost/shop",
            "posthouse: no store is in MySQL: events are kept in your own database, which is PostgreSQL or SQLite here",
        ),
        Mistake(
            "db sql unknown migration",
            "posthouse db sql sqlite:///shop.db --from 9999",
            "posthouse: there is no migration '9999'.",
        ),
        Mistake(
            "db bad option",
            'posthouse db status "sqlite:///shop.db?shard=4"',
            "posthouse: the SQLite store has no option 'shard'. Did you mean 'shards'?",
        ),
        Mistake(
            "db option range",
            'posthouse db status "sqlite:///shop.db?shards=0"',
            "posthouse: the SQLite store: shards=0 does not fit: Expected `int` >= 1",
        ),
        Mistake(
            "db postgres option",
            'posthouse db status "postgresql://localhost/shop?schemaa=events"',
            "posthouse: the PostgreSQL store has no option 'schemaa'. Did you mean 'schema'?",
        ),
        Mistake(
            "db postgres schema name",
            'posthouse db status "postgresql://localhost/shop?schema=My-Schema"',
            "posthouse: the PostgreSQL store: schema=My-Schema does not fit: Expected `str` matching regex '^[a-z_][a-z0-9_]{0,62}$'",
        ),
        Mistake(
            "db password unescaped",
            'posthouse db status "postgresql://app:p@ss/word@localhost/shop"',
            "posthouse: the postgresql URL has a part behind its servers that looks like a password: … `/`, `?`, `#`, `@`, `:`, `[` or blank in a user or a",
        ),
        Mistake(
            "db nobody listens",
            'posthouse db status "postgresql://localhost:1/shop"',
            "posthouse: using the database: [Errno 111] Connect call failed ('127.0.0.1', 1)",
        ),
        Mistake(
            "db sqlite host",
            "posthouse db status sqlite://shop.db",
            "posthouse: 'sqlite://shop.db' names a host: write sqlite:///shop.db (relative) or sqlite:////var/lib/shop.db",
        ),
    ],
    "Commands": [
        Mistake("run without target", "posthouse run", "Missing argument 'TARGET'."),
        Mistake(
            "a console for everybody",
            "posthouse console shop --http 0.0.0.0:8470",
            "posthouse: a console on 0.0.0.0 would be open to whoever reaches that address: give --oidc-issuer or --proxy-keys, so that it knows who asks; or leave it on 127.0.0.1 and reach it by `ssh -L 8470:127.0.0.1:8470`",
        ),
        Mistake(
            "a console without roles",
            "posthouse console shop --oidc-issuer https://login.example --oidc-client-id console",
            "posthouse: --oidc-issuer needs --roles FILE, which says who may do what",
        ),
        Mistake(
            "a console of an issuer without https",
            "posthouse console shop --oidc-issuer login.example --oidc-client-id console --roles roles.toml",
            "posthouse: Oidc(issuer='login.example'): an issuer is an https:// address",
        ),
        Mistake(
            "http port alone",
            "posthouse run shop --http 9464",
            "posthouse: --http 9464: say for whom: 127.0.0.1:9464 for this host alone, 0.0.0.0:9464 for whoever reaches it",
        ),
        Mistake(
            "http colon and port",
            "posthouse watch shop --http :9464",
            "posthouse: --http :9464: say for whom: 127.0.0.1:9464 for this host alone, 0.0.0.0:9464 for whoever reaches it",
        ),
        Mistake(
            "http without port",
            "posthouse run shop --http localhost",
            "posthouse: --http localhost: the port is missing: write localhost:9464",
        ),
        Mistake(
            "console without port",
            "posthouse console shop --http localhost",
            "posthouse: --http localhost: the port is missing: write localhost:8470",
        ),
        Mistake(
            "console of nothing",
            "posthouse console shopp",
            "posthouse: no module is called 'shopp'",
        ),
        Mistake(
            "http url",
            "posthouse run shop --http http://localhost:9464/metrics",
            "posthouse: --http http://localhost:9464/metrics: it is HOST:PORT, without http://: write localhost:9464",
        ),
        Mistake(
            "http six without brackets",
            "posthouse run shop --http ::1:9464",
            "posthouse: --http ::1:9464: an address with colons stands in brackets: write [::1]:9464",
        ),
        Mistake(
            "http large port",
            "posthouse run shop --http 127.0.0.1:94640",
            "posthouse: --http 127.0.0.1:94640: a port is a number from 0 to 65535, not '94640'",
        ),
        Mistake(
            "http of another host",
            "posthouse run shop --http 192.0.2.1:9464",
            "posthouse: --http 192.0.2.1:9464: 192.0.2.1 is no address of this host",
        ),
        Mistake(
            "metrics prefix",
            "posthouse run shop --http 127.0.0.1:0 --prefix my-shop",
            "posthouse: no metric can begin with the prefix 'my-shop': a letter, then letters, digits and _",
        ),
        Mistake(
            "metrics prefix of nothing",
            "posthouse run shop --prefix platform",
            "posthouse: --prefix is for the names of figures, and none are served: add --http 127.0.0.1:9464",
        ),
        Mistake(
            "metrics prefix in the environment",
            """\
$POSTHOUSE_METRICS_PREFIX=9lives
posthouse watch shop --http 127.0.0.1:0""",
            "posthouse: no metric can begin with the prefix '9lives'",
        ),
        Mistake("watch misspelled", "posthouse watch shpo", "or among the installed ones. Did you mean 'shop'?"),
        Mistake("watch nothing", "posthouse watch shop --http 127.0.0.1:0", "shop.db is not there."),
        Mistake("two same services", "posthouse check shop plain", "posthouse: two services are called 'orders'"),
        Mistake("outbox", "posthouse outbox stuck shpo", "No such command 'stuck'."),
        Mistake(
            "seek both",
            "posthouse seek shop --time yesterday",
            "posthouse: 'yesterday' is not a time: write 2026-04-22T10:00:00Z",
        ),
        Mistake("flow missing", "posthouse flow show shop", "No such command 'show'."),
        Mistake("timers", "posthouse timers shpo", "or among the installed ones. Did you mean 'shop'?"),
        Mistake(
            "explain shows no internals",
            "posthouse check shop --explain nothing-such",
            "posthouse: there is no rule 'nothing-such'.",
        ),
        Mistake("unknown verb", "posthouse statsu shop", "No such command 'statsu'. Did you mean 'status'?"),
        Mistake("unknown option", "posthouse status shop --jsno", "No such option: --jsno (Possible options: --json)"),
        Mistake("no target", "posthouse status", "Missing argument 'TARGET'."),
        Mistake(
            "watched without a pause",
            "posthouse status shop --watch --every 0",
            "posthouse: --every takes seconds from 0.1 to 3600, not 0",
        ),
        Mistake(
            "target file",
            "posthouse status shop.py",
            "posthouse: 'shop.py' is a file, not a module. Did you mean 'shop'?",
        ),
        Mistake(
            "target path",
            "posthouse status ./shop",
            "posthouse: './shop' is a file, not a module. Did you mean 'shop'?",
        ),
        Mistake("target misspelt", "posthouse status shpo", "or among the installed ones. Did you mean 'shop'?"),
        Mistake(
            "attribute misspelt",
            "posthouse status shop:ordes",
            "posthouse: shop has no 'ordes'. Did you mean 'orders'?",
        ),
        Mistake(
            "attribute no service",
            "posthouse status shop:number",
            "posthouse: shop:number is no Service and no App, but int; shop holds shop:app, shop:orders: name one of them",
        ),
        Mistake(
            "module without service",
            "posthouse status empty",
            "posthouse: empty holds no Service: make one with `orders = Service('orders')`",
        ),
        Mistake(
            "module that cannot be imported",
            "posthouse status broken",
            "line 1, in <module> import orderz ModuleNotFoundError: No module named 'orderz'",
        ),
        Mistake(
            "target url",
            "posthouse status sqlite:///shop.db",
            "posthouse: sqlite:// is where a store or a broker is; name what uses it: module:service",
        ),
        Mistake(
            "run unknown part",
            "posthouse run shop --only consumer",
            "Invalid value for '--only': Value error, 'consumer' is not one of 'relay', 'consumers', 'timers', 'archive'.",
        ),
        Mistake(
            "run relay word",
            "posthouse run shop --relay logical",
            "Invalid value for '--relay': Value error, 'logical' is not one of 'poll', 'wal'.",
        ),
        Mistake("held unknown verb", "posthouse held retri shop", "No such command 'retri'. Did you mean 'retry'?"),
        Mistake(
            "held unknown id",
            "posthouse held retry shop nope",
            "Invalid value for 'ID': Input should be a valid integer, unable to parse string as an integer",
        ),
        Mistake(
            "held show unknown",
            "posthouse held show shop nope",
            "Invalid value for 'ID': Input should be a valid integer, unable to parse string as an integer",
        ),
        Mistake("outbox resend nothing", "posthouse outbox resend", "Missing argument 'TARGET'."),
        Mistake(
            "seek no time",
            "posthouse seek shop",
            "posthouse: say where to: --time 2026-04-22T10:00:00Z, or --position with --topic",
        ),
        Mistake(
            "seek bad time",
            "posthouse seek shop orders --to yesterdayish",
            "No such option: --to (Possible options: --json, --time, --topic)",
        ),
        Mistake(
            "seek unknown consumer",
            "posthouse seek shop --consumer bling --to 2027-01-01",
            "No such option: --to (Possible options: --json, --time, --topic)",
        ),
        Mistake(
            "saga dump without file",
            "posthouse saga dump shop",
            "Missing option '--to'.",
        ),
        Mistake(
            "saga replay nowhere",
            "posthouse saga replay shop nowhere.jsonl",
            "posthouse: nowhere.jsonl cannot be read: No such file or directory",
        ),
        Mistake(
            "saga replay of something else",
            "posthouse saga replay shop shop.py",
            "posthouse: line 1 is not the history of a saga: ",
        ),
        Mistake(
            "saga check without sagas",
            "posthouse saga check shop",
            "posthouse: orders declares no saga: declare one with @orders.saga(…)",
        ),
        Mistake("timers unknown", "posthouse timers cancel shop nope", "Got unexpected extra argument(s) (shop nope)"),
        Mistake(
            "saga tasks without sagas",
            "posthouse saga tasks shop --by manager",
            "posthouse: orders declares no saga: declare one with @orders.saga(…)",
        ),
        Mistake(
            "trace attempt without a saga",
            "posthouse trace o1 shop --attempt 2",
            "posthouse: --tenant and --attempt are those of a saga: name it with --saga",
        ),
        Mistake(
            "trace of no saga",
            "posthouse trace --saga checkout o1 shop",
            "posthouse: no saga is called 'checkout'. None is declared.",
        ),
        Mistake(
            "saga list where nothing",
            "posthouse saga list shop --where order_id",
            "posthouse: --where order_id: write FIELD=VALUE, as in --where policy_id=p1",
        ),
        Mistake(
            "saga unknown",
            "posthouse saga show shop checkout o1",
            "posthouse: orders has no saga 'checkout'. It declares none.",
        ),
        Mistake(
            "projection unknown",
            "posthouse projection rebuild shop orders_by_day",
            "posthouse: orders has no projection 'orders_by_day'.",
        ),
        Mistake(
            "check unknown rule",
            "posthouse check shop --explain bad-subjekt",
            "posthouse: there is no rule 'bad-subjekt'. Did you mean 'bad-subject'?",
        ),
        Mistake(
            "check format",
            "posthouse check shop --format xml",
            "Invalid value for '--format': Value error, 'xml' is not one of 'human', 'json', 'sarif', 'github'.",
        ),
        Mistake(
            "check missing json",
            "posthouse check nowhere.json",
            "posthouse: nowhere.json cannot be read: No such file or directory",
        ),
        Mistake("trace unknown", "posthouse trace shop nope", "posthouse: no module is called 'nope' in"),
        Mistake("flow unknown", "posthouse flow shop nope", "No such command 'shop'."),
        Mistake(
            "new existing",
            "posthouse new shop.py",
            "posthouse: 'shop.py' cannot be the name of a service: it takes lower-case letters, digits and single underscores, a letter first, and no word of",
        ),
        Mistake(
            "new bad name",
            'posthouse new "My Shop"',
            "posthouse: 'My Shop' cannot be the name of a service: it takes lower-case letters, digits and single underscores, a letter first, and no word of",
        ),
        Mistake("topics", "posthouse topics shpo", "or among the installed ones. Did you mean 'shop'?"),
        Mistake(
            "schema check",
            "posthouse schema check shop",
            "posthouse: there is no folder event-schemas: run `posthouse catalog freeze`, or name it with --dir",
        ),
        Mistake("schema freeze nowhere", "posthouse schema diff", "Missing argument 'OLD'."),
        Mistake(
            "contract", "posthouse contract verify nowhere.json shop", "posthouse: no module is called 'nowhere' in"
        ),
        Mistake("catalog", "posthouse catalog nowhere", "posthouse: no module is called 'nowhere' in"),
        Mistake(
            "export threshold",
            "posthouse export alerts --set consumer_lag=60",
            "posthouse: --set consumer_lag=60: no threshold is called 'consumer_lag'. Did you mean 'consumer_lag_events'?",
        ),
        Mistake(
            "export no number",
            "posthouse export alerts --set consumer_lag_seconds",
            "posthouse: --set consumer_lag_seconds: write a name and a number, as in --set consumer_lag_seconds=60",
        ),
        Mistake(
            "export share",
            "posthouse export alerts --set error_share=5",
            "posthouse: Thresholds(error_share=5.0): it is a number from 0 to 1",
        ),
        Mistake(
            "export label",
            "posthouse export alerts --by my-env",
            "posthouse: --by my-env: a label is a letter or _, then letters, digits and _",
        ),
        Mistake(
            "export time scale",
            "posthouse export alerts --time-scale 0",
            "posthouse: --time-scale 0: a number above 0 and up to 1000",
        ),
        Mistake(
            "export tests alone",
            "posthouse export alerts --tests cases.yaml",
            "posthouse: --tests needs --out: the cases name the file of the rules",
        ),
        Mistake(
            "export prefix",
            "posthouse export alerts --prefix 9x",
            "posthouse: no metric can begin with the prefix '9x'",
        ),
        Mistake("export nowhere", "posthouse export dashboards", "Missing option '--out'."),
        Mistake("registry", "posthouse registry --store mysql://x", "No such option: --store"),
        Mistake("actions", "posthouse actions shpo", "or among the installed ones. Did you mean 'shop'?"),
        Mistake("topology", "posthouse topology plan shpo", "or among the installed ones. Did you mean 'shop'?"),
    ],
    "The environment, files and rights": [
        Mistake(
            "env empty broker",
            """\
$POSTHOUSE_BROKER=
posthouse status plain""",
            "posthouse: POSTHOUSE_BROKER is set and empty: name a URL in it, or unset it for embedded:///posthouse-log.db",
        ),
        Mistake(
            "doctor unwritable",
            """\
$POSTHOUSE_STORE=sqlite:////proc/shop.db
posthouse doctor plain""",
            "orders, store: sqlite:////proc/shop.db CHECK FOUND SQLite warn 3.40.1 filesystem ok proc file fail the folder /proc cannot be written: No such file",
        ),
        Mistake("store is folder", "posthouse db upgrade sqlite:///.", "unable to open database file"),
        Mistake("store is other file", "posthouse db status sqlite:///shop.py", "file is not a database"),
        Mistake("no folder", "posthouse db upgrade sqlite:///nowhere/shop.db", "make it, or name another file"),
        Mistake("db no url", "posthouse db status shop.db", "or among the installed ones. Did you mean 'shop'?"),
        Mistake(
            "env store",
            """\
$POSTHOUSE_STORE=mysql://root@localhost/shop
posthouse status plain""",
            "posthouse: no store is in MySQL: events are kept in your own database, which is PostgreSQL or SQLite here",
        ),
        Mistake(
            "env empty",
            """\
$POSTHOUSE_STORE=
posthouse status plain""",
            "posthouse: POSTHOUSE_STORE is set and empty: name a URL in it, or unset it for sqlite:///orders.db",
        ),
        Mistake(
            "env broker",
            """\
$POSTHOUSE_BROKER=kafak://localhost
posthouse status plain""",
            "posthouse: no broker is called 'kafak' in 'kafak://localhost'. Did you mean 'kafka'?",
        ),
        Mistake(
            "env broker amqp",
            """\
$POSTHOUSE_BROKER=amqp://localhost
posthouse doctor plain""",
            "posthouse: amqp:// is RabbitMQ: write rabbitmq://user:…@host:5672/vhost",
        ),
    ],
}
