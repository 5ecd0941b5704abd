"""What the rules see beyond their examples, and what they do not mistake for it."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from posthouse.contracts import Schema
from posthouse.governance.document import Document, EventEntry
from posthouse.governance.policies import Facts, PayloadClass, Settings, examine
from tests.unit.governance.policies.conftest import Find, Gather

MELMASTOON = (Path(__file__).parents[2] / "events" / "data" / "melmastoon-subjects.txt").read_text().split()
TODAY = date(2026, 11, 15)


def event(subject: str, fields: str, *, key: str | None = "order_id", more: str = "") -> str:
    """One event of orders with these fields, one line each."""
    said = "" if key is None else f', key="{key}"'
    name = "".join(word.title() for word in subject.replace(".", "_").split("_"))
    return f'\n@orders.event("{subject}"{said}{more})\nclass {name}(Payload):\n    {fields.strip()}\n'


def handler(reads: str, *, by: str = "billing", result: str = "None", policy: str = "", name: str = "react") -> str:
    return f"\n@{by}.on({reads}{policy})\nasync def {name}(event: Event[{reads}], tx: Tx) -> {result}:\n    ...\n"


PLACED = event("order.placed.v1", "order_id: str")
PAID = event("order.paid.v1", "order_id: str\n    amount_cents: int")


def entry(subject: str, schema: str = '{"type":"object"}', **more: object) -> EventEntry:
    """An event of somebody else's catalogue."""
    namespace, service, aggregate, verb, version = subject.split(".")
    made = Schema("json", schema)
    said: dict[str, object] = {
        "subject": subject, "namespace": namespace, "service": service, "aggregate": aggregate, "verb": verb,
        "version": int(version[1:]), "topic": ".".join((namespace, service, aggregate)), "owner": "x", "key": "id",
        "retention": "hot", "residency": None, "content_type": "application/json", "schema_uri": "", "hash": made.hash,
        "format": "json", "schema": schema, **more,
    }  # fmt: skip
    return EventEntry(**said)  # type: ignore[arg-type]  # the fields are as the Struct names them


def rules_of(*entries: EventEntry, settings: Settings | None = None) -> set[str]:
    facts = Facts(document=Document(events=entries), today=TODAY, settings=settings or Settings())
    return {finding.rule for finding in examine(facts).findings}


# Names


@pytest.mark.parametrize(
    "subject", ["shop.orders.order.place.v1", "shop.orders.Order.placed.v1", "shop.orders.data.stored.v1"]
)
def test_a_bad_subject_of_a_foreign_catalogue_is_found(subject: str) -> None:
    assert "bad-subject" in rules_of(entry(subject))


def test_a_fact_that_is_not_past_tense_may_be_declared_as_such() -> None:
    assert "bad-subject" not in rules_of(
        entry("shop.lock.vendor.offline.v1"), settings=Settings(not_past=("vendor.offline",))
    )
    assert "bad-subject" in rules_of(entry("shop.lock.vendor.offline.v1"))


@pytest.mark.parametrize("verb", ["held", "confirmed", "dates_changed", "check_in_started", "no_show", "charge_posted"])
def test_good_verbs_are_left_alone(verb: str) -> None:
    assert not rules_of(entry(f"melmastoon.reservation.booking.{verb}.v1")) & {
        "bad-subject",
        "event-as-rpc",
        "vague-verb",
    }


def test_the_subjects_of_the_reference_platform_are_well_named() -> None:
    known = [entry(subject) for subject in MELMASTOON if subject.count(".") == 4]
    assert len(known) == 80
    assert not rules_of(*known) & {"bad-subject", "event-as-rpc"}


def test_a_request_that_is_answered_to_its_author_is_a_call(find: Find) -> None:
    asked = event("refund.requested.v1", "order_id: str")
    answer = '\n@billing.event("refund.granted.v1", key="order_id")\nclass Granted(Payload):\n    order_id: str\n'
    react = handler("RefundRequestedV1", result="Granted")
    assert not find("event-as-rpc", asked)
    assert not find("event-as-rpc", asked + answer + react)
    [found] = find("event-as-rpc", asked + answer + react + handler("Granted", by="orders", name="heard"))
    assert "waits for the answer shop.billing.refund.granted.v1" in found.sentence


@pytest.mark.parametrize("field", ["reply_to", "replyTo", "response_topic"])
def test_a_payload_that_says_where_to_answer_is_a_call(find: Find, field: str) -> None:
    assert find("event-as-rpc", event("order.placed.v1", f"order_id: str\n    {field}: str"))


def test_a_fact_without_an_aggregate_is_looked_at_like_any_other(find: Find) -> None:
    text = event("uploaded.v1", "orders_id: str", key=None)
    assert not find("bad-subject", text)
    assert "facts about one thing" in find("missing-key", text)[0].sentence
    assert "the whole aggregate" in find("whole-aggregate", text, Settings(most_fields=0))[0].sentence


# Tenants


def test_an_event_of_the_platform_may_have_no_tenant(find: Find) -> None:
    publish = '\nasync def f():\n    async with orders.transaction("platform") as tx:\n        tx.publish(OrderPlacedV1(order_id="1"))\n'
    [found] = find("untenanted-event", PLACED + publish)
    assert (found.file, found.where) == ("shop.py", "shop.orders.order.placed.v1")
    assert not find("untenanted-event", PLACED + publish, Settings(platform=("shop.orders.*",)))


def test_a_listed_cross_tenant_topic_has_listed_readers(find: Find) -> None:
    text = event("report.closed.v1", "report_id: str\n    tenants: list[str]", key="report_id") + handler(
        "ReportClosedV1"
    )
    outside, inside = Settings(), Settings(cross_tenant={"shop.orders.report": ("billing",)})
    assert [f.where for f in find("cross-tenant-topic", text, outside)] == ["shop.orders.report"]
    assert not find("cross-tenant-topic", text, inside)
    [found] = find("cross-tenant-topic", text, Settings(cross_tenant={"shop.orders.*": ("warehouse",)}))
    assert "'billing' is not among its readers" in found.sentence


def test_what_is_declared_as_cross_tenant_is(find: Find) -> None:
    assert not find("cross-tenant-topic", event("week.counted.v1", "week: str", key="week"))
    [found] = find("cross-tenant-topic", event("week.counted.v1", "week: str", key="week", more=", cross_tenant=True"))
    assert (found.where, "is declared as cross-tenant" in found.sentence) == ("shop.orders.week", True)


def test_a_tenant_for_each_item_spans_tenants(find: Find) -> None:
    row = "class Row(Payload):\n    tenant_id: str\n"
    text = row + event(
        "report.closed.v1", "report_id: str\n    rows: Annotated[list[Row], Meta(max_length=3)]", key="report_id"
    )
    assert find("cross-tenant-topic", text)
    assert not find("cross-tenant-topic", event("order.placed.v1", "order_id: str\n    tenant_id: str"))


def test_marked_fields_are_personal_whatever_their_names(find: Find) -> None:
    text = event(
        "report.closed.v1",
        'report_id: str\n    tenants: int\n    who: Annotated[str, Personal("identity")]',
        key="report_id",
    )
    [found] = find("personal-data-across-tenants", text)
    assert found.sentence.endswith("personal data: who")


# Order


@pytest.mark.parametrize("field", ["order_id", "orderId", "id"])
def test_the_id_of_the_aggregate_could_be_the_key(find: Find, field: str) -> None:
    [found] = find("missing-key", event("order.placed.v1", f"{field}: str", key=None))
    assert f'key="{field}"' in found.fix


def test_a_fact_about_no_one_thing_needs_no_key(find: Find) -> None:
    assert not find("missing-key", event("order.placed.v1", "customer_id: str", key=None))


def test_facts_about_tenants_may_be_ordered_by_tenant(find: Find) -> None:
    text = event("tenant.created.v1", "tenant_id: str", key="tenant_id")
    assert not find("key-is-tenant", text)
    assert "key-is-tenant" not in rules_of(entry("shop.tenant.plan.chosen.v1", key="tenant_id"))
    assert "key-is-tenant" in rules_of(entry("shop.orders.plan.chosen.v1", key="tenant_id"))


def test_order_across_topics_matters_to_ordered_consumers_of_keyed_facts_of_one_thing(find: Find) -> None:
    def text(key: str = "order_id", policy: str = "", other: str = "order") -> str:
        split = 'orders = Service("orders", namespace="shop", owner="x", topics="subject")\n'
        first = event("order.placed.v1", "order_id: str", key=key)
        second = event(f"{other}.cancelled.v1", "order_id: str", key=key)
        name = f"{other.title()}CancelledV1"
        return split + first + second + handler("OrderPlacedV1", policy=policy) + handler(name, name="b", policy=policy)

    [found] = find("order-across-topics", text())
    assert found.where == "billing"
    assert not find("order-across-topics", text(policy=', policy=Policy(order="none")'))
    assert not find("order-across-topics", text(other="parcel"))


# Money


def test_a_version_in_the_payload_orders_money_too(find: Find) -> None:
    assert find("last-write-wins", event("order.paid.v1", "amount_cents: int", key=None))
    assert not find("last-write-wins", event("order.paid.v1", "amount_cents: int\n    version: int", key=None))


def test_stock_is_like_money(find: Find) -> None:
    assert find("last-write-wins", event("room.sold.v1", "stock: int", key=None))


def test_a_reader_without_order_lets_an_older_amount_win(find: Find) -> None:
    [found] = find("last-write-wins", PAID + handler("OrderPaidV1", policy=', policy=Policy(order="none")'))
    assert found.where == "shop.react"
    assert not find("last-write-wins", PAID + handler("OrderPaidV1"))
    assert not find("last-write-wins", PAID + PLACED + handler("OrderPlacedV1", policy=', policy=Policy(order="none")'))


@pytest.mark.parametrize(
    "field", ["charge_id: str", "tax_rate: float", "refund_reason: str", "paid: bool", "deposit: bool"]
)
def test_what_only_sounds_like_money_is_none(find: Find, field: str) -> None:
    assert not find("short-retention", event("order.paid.v1", f"order_id: str\n    {field}"))


@pytest.mark.parametrize("field", ["price: Decimal", "totalCents: int", "amount: str", "fee: int | None"])
def test_money_is_known_by_many_names(find: Find, field: str) -> None:
    assert find("short-retention", event("order.paid.v1", f"order_id: str\n    {field}"))


def test_only_numbers_are_floats(find: Find) -> None:
    assert not find("float-money", event("order.paid.v1", "order_id: str\n    price: Decimal\n    fee: int"))
    assert find("float-money", event("order.paid.v1", "order_id: str\n    price: float | None"))


def test_money_from_outside_needs_a_key_and_money_in_a_handler_does_not(find: Find) -> None:
    outside = '\nasync def pay(tx):\n    tx.publish(OrderPaidV1(order_id="1", amount_cents=2))\n'
    inside = handler("OrderPlacedV1", by="orders").replace(
        "...", 'tx.publish(OrderPaidV1(order_id="1", amount_cents=2))'
    )
    [found] = find("money-without-idempotency-key", PLACED + PAID + outside)
    assert "shop.pay publishes" in found.sentence
    assert not find("money-without-idempotency-key", PLACED + PAID + inside)
    assert not find("missing-idempotency-key", PLACED + PAID + outside)


def test_what_is_published_and_is_no_event_here_is_not_looked_at(find: Find) -> None:
    assert not find("missing-idempotency-key", PLACED + "\ndef f(mqtt):\n    mqtt.publish(Other())\n")


def test_the_settings_say_what_is_kept(find: Find) -> None:
    text = event("entry.added.v1", "order_id: str")
    assert not find("short-retention", text)
    assert find("short-retention", text, Settings(cold=("shop.orders.entry.*",)))


def test_a_class_is_known_by_its_own_name_where_only_one_has_it(find: Find) -> None:
    publish = (
        '\nasync def f(tx):\n    from elsewhere import OrderPlacedV1\n    tx.publish(OrderPlacedV1(order_id="1"))\n'
    )
    assert find("missing-idempotency-key", PLACED + publish)
    other = "\nclass Other:\n    " + PLACED.strip().replace("\n", "\n    ").replace("order.placed", "order.put") + "\n"
    assert not find("missing-idempotency-key", PLACED + other + publish)


# Payloads


def test_a_model_of_a_database_is_no_payload() -> None:
    made = entry("shop.orders.order.placed.v1", '{"type":"object","properties":{"id":{"type":"string"}}}')
    for base, caught in (("sqlalchemy.orm.decl_api.DeclarativeBase", True), ("msgspec.Struct", False)):
        known = {made.subject: PayloadClass(name="shop.Order", ancestors=("shop.Row", base))}
        facts = Facts(document=Document(events=(made,)), today=TODAY, classes=known)
        assert ("orm-shape" in {f.rule for f in examine(facts).findings}) is caught


def test_what_a_mapper_keeps_for_itself_is_no_payload() -> None:
    schema = '{"type":"object","properties":{"_sa_instance_state":{"type":"string"}}}'
    assert "orm-shape" in rules_of(entry("shop.orders.order.placed.v1", schema))


def test_bounds_may_add_up_to_the_limit(find: Find) -> None:
    text = event("order.placed.v1", "order_id: str\n    x: Annotated[str, Meta(max_length=100)]")
    assert not find("payload-grows", text, Settings(payload_limit=len('"order_id":,') + len('"x":,') + 100))
    assert find("payload-grows", text, Settings(payload_limit=len('"order_id":,') + len('"x":,') + 99))


def test_thirty_fields_are_not_yet_everything(find: Find) -> None:
    fields = [f"f{number}: str" for number in range(31)]
    assert not find("whole-aggregate", event("order.placed.v1", "\n    ".join(fields[:30]), key=None))
    assert find("whole-aggregate", event("order.placed.v1", "\n    ".join(fields), key=None))
    assert find("whole-aggregate", event("order.placed.v1", "order_id: str"), Settings(most_fields=0))


def test_one_time_stamp_is_no_row(find: Find) -> None:
    assert not find("orm-shape", event("order.placed.v1", "order_id: str\n    created_at: str"))
    assert not find("orm-shape", event("order.placed.v1", "created_at: str\n    updated_at: str", key=None))


@pytest.mark.parametrize(
    ("field", "grows"),
    [
        ("x: list[str]", True),
        ("x: Annotated[list[int], Meta(max_length=9)]", False),
        ("x: dict[str, str]", True),
        ("x: bytes", True),
        ("html_body: str", True),
        ("body_url: str", False),
        ("document: Annotated[str, Meta(max_length=100)]", False),
        ("x: Annotated[str, Meta(max_length=300_000)]", True),
        ("x: Annotated[list[Annotated[str, Meta(max_length=100_000)]], Meta(max_length=3)]", True),
        ("x: list[int] | None = None", True),
        ("x: Annotated[list[int], Meta(max_length=9)] | None = None", False),
        ("x: Annotated[list[int], Meta(max_length=9)] | dict[str, int]", True),
        ("x: Annotated[list[int], Meta(max_length=9)] | str", False),
        ("x: Annotated[dict[str, int], Meta(max_length=9)]", False),
        ("note: str", False),
    ],
)
def test_a_payload_grows_where_nothing_bounds_it(find: Find, field: str, grows: bool) -> None:
    assert bool(find("payload-grows", event("order.placed.v1", f"order_id: str\n    {field}"))) is grows


@pytest.mark.parametrize(
    ("field", "untyped"),
    [("x: Any", True), ("x: list[Any]", True), ("x: dict[str, Any]", True), ("x: dict", True), ("x: list", True),
     ("x: list[str]", False), ("x: dict[str, int]", False), ("x: str | int | None", False)],
)  # fmt: skip
def test_a_field_that_may_be_anything_is_found(find: Find, field: str, untyped: bool) -> None:
    assert bool(find("untyped-field", event("order.placed.v1", f"order_id: str\n    {field}"))) is untyped


def test_a_type_that_holds_itself_is_typed_and_is_entered_once(find: Find, gather: Gather) -> None:
    node = "class Node(Payload):\n    name: str\n    below: 'Annotated[list[Node], Meta(max_length=2)]'\n"
    text = node + event("tree.grown.v1", "order_id: str\n    root: Node")
    assert not find("untyped-field", text)
    paths = [field.path for field in gather(text).fields["shop.orders.tree.grown.v1"]]
    assert sorted(paths) == ["order_id", "root", "root.below", "root.name"]


def test_the_envelope_may_be_named_inside_an_object(find: Find) -> None:
    inner = "class Origin(Payload):\n    event_id: str\n"
    assert not find("envelope-in-payload", inner + event("order.placed.v1", "order_id: str\n    origin: Origin"))


# People and models


@pytest.mark.parametrize(
    ("field", "personal"),
    [("email: str", True), ("guestName: str", True), ("date_of_birth: date", True), ("passport: str", True),
     ("email_id: str", False), ("name: str", False), ("email: bool", False), ("ip_address: str", True)],
)  # fmt: skip
def test_personal_fields_are_known_by_their_names(find: Find, field: str, personal: bool) -> None:
    assert bool(find("personal-data-unmarked", event("order.placed.v1", f"order_id: str\n    {field}"))) is personal


def test_a_mark_covers_what_is_inside(find: Find) -> None:
    guest = "class Guest(Payload):\n    email: str\n"
    marked = 'guest: Annotated[Guest, Personal("contact")]'
    assert not find("personal-data-unmarked", guest + event("order.placed.v1", f"order_id: str\n    {marked}"))
    [found] = find("personal-data-unmarked", guest + event("order.placed.v1", "order_id: str\n    guest: Guest"))
    assert "guest.email" in found.sentence


MARKED = 'order_id: str\n    email: Annotated[str, Personal("contact")]'


def test_a_key_that_is_marked_is_an_error_and_one_that_sounds_personal_a_warning(find: Find) -> None:
    [marked] = find("personal-data-in-key", event("order.placed.v1", MARKED, key="email"))
    assert marked.severity == "error"
    assert marked.sentence == "shop.orders.order.placed.v1 is ordered by 'email', which is marked as personal"
    assert marked.line is not None
    [sounding] = find("personal-data-in-key", event("order.placed.v1", "email: str", key="email"))
    assert sounding.severity == "warning"
    assert sounding.sentence.endswith("which sounds personal")


@pytest.mark.parametrize("key", ["order_id", "passport_id", "email_hash"])
def test_a_key_that_says_nothing_of_a_person_is_left_alone(find: Find, key: str) -> None:
    assert not find("personal-data-in-key", event("order.placed.v1", f"{MARKED}\n    {key}: str", key=key))


def test_a_marked_field_that_travels_under_another_name_is_no_key_either(find: Find) -> None:
    renamed = 'import msgspec\n@orders.event("order.placed.v1", key="contact")\nclass Placed(Payload):\n    contact: Annotated[str, '
    for other in ("mail_of_guest", "e"):
        text = f'{renamed}Personal("contact")] = msgspec.field(name="{other}")\n'
        [found] = find("personal-data-in-key", text)
        assert found.severity == "error"


def test_a_field_inside_that_is_marked_is_another_one_than_the_key(find: Find) -> None:
    guest = 'class Guest(Payload):\n    code: Annotated[str, Personal("identity")]\n'
    assert not find("personal-data-in-key", guest + event("order.placed.v1", "code: str\n    guest: Guest", key="code"))


def test_the_key_of_a_stream_is_the_key_of_its_events(find: Find) -> None:
    stream = (
        "\ndef evolve(state: dict, event: OrderPlacedV1) -> dict:\n    return state\n"
        'orders.aggregate("order", initial=dict, evolve=evolve, events=[OrderPlacedV1])\n'
    )
    assert find("personal-data-in-key", event("order.placed.v1", MARKED, key="email") + stream)
    assert not find("personal-data-in-key", event("order.placed.v1", MARKED) + stream)


def test_whom_an_event_is_about_is_not_said_by_what_sounds_personal(find: Find) -> None:
    def about(field: str, mark: str = 'Personal("contact")', said: str = "") -> str:
        return event("order.placed.v1", f"order_id: str\n    {field}: str\n    mail: Annotated[str, {mark}]", more=said)

    [found] = find("personal-data-in-key", about("phone", said=', about="phone"'))
    assert (found.severity, "says whom it is about by 'phone'" in found.sentence) == ("warning", True)
    assert find("personal-data-in-key", about("phone", 'Personal("contact", of="phone")'))
    assert not find("personal-data-in-key", about("guest_id", said=', about="guest_id"'))


def test_the_key_of_a_foreign_catalogue_may_sound_personal() -> None:
    assert "personal-data-in-key" in rules_of(entry("shop.orders.order.placed.v1", key="guest_email"))
    assert "personal-data-in-key" not in rules_of(entry("shop.orders.order.placed.v1"))


@pytest.mark.parametrize(
    ("key", "severity"),
    [('f"place:{email}"', "error"), ('f"place:{request.email.lower()}"', "error"), ('"place:" + data["email"]', "error"),
     ('"place:{}".format(email)', "error"), ('f"place:{phone}"', "warning"), ('f"place:{order_id}"', None),
     ('f"place:{digest(email)}"', None), ('f"place:{email_hash}"', None), ('f"place:{1 if email else 2}"', None)],
)  # fmt: skip
def test_an_idempotency_key_says_nothing_of_a_person(find: Find, key: str, severity: str | None) -> None:
    text = event("order.placed.v1", MARKED)
    said = f"\ndef place(tx):\n    tx.publish(OrderPlacedV1(order_id='1', email='a@b'), idempotency_key={key})\n"
    found = find("personal-data-in-key", text + said)
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(one.where == "shop.orders.order.placed.v1" and one.line for one in found)


@pytest.mark.parametrize(
    "call", ["orders.transaction('t', ", "orders.joined(c, 't', ", "placing.execute('1', decide, "]
)
def test_a_correlation_says_nothing_of_a_person(find: Find, call: str) -> None:
    text = event("order.placed.v1", MARKED.replace("email", "who"))
    said = f"\ndef place(request):\n    {call}correlation=f'place:{{request.%s}}')\n"
    [found] = find("personal-data-in-key", text + said % "who")
    assert found.severity == "error"
    assert found.sentence == "shop.place makes the correlation of 'who', which is marked as personal"
    assert not find("personal-data-in-key", text + said % "id")


def test_a_name_that_is_marked_in_one_event_and_plain_in_another_is_not_told_apart_in_a_correlation(find: Find) -> None:
    text = event("order.placed.v1", MARKED.replace("email", "who")) + event(
        "order.paid.v1", "order_id: str\n    who: str"
    )
    assert not find("personal-data-in-key", text + "\ndef f(who):\n    orders.transaction('t', correlation=who)\n")


@pytest.mark.parametrize(
    ("field", "secret"),
    [("password: str", True), ("password: bool", False), ("apiKey: str", True), ("card_number: str", True), ("password_policy: str", False),
     ("pin_required: bool", False), ("token_id: str", False), ("card_last_four: str", False)],
)  # fmt: skip
def test_secrets_are_known_by_their_names(find: Find, field: str, secret: bool) -> None:
    assert bool(find("secret-in-payload", event("order.placed.v1", f"order_id: str\n    {field}"))) is secret


def test_provenance_may_stand_in_an_object(find: Find) -> None:
    origin = "class Origin(Payload):\n    model: str\n    version: str\n    confidence: float\n    source: str\n"
    assert not find("ai-without-provenance", origin + event("fraud.found.v1", "order_id: str\n    provenance: Origin"))
    [found] = find("ai-without-provenance", event("fraud.found.v1", "order_id: str\n    confidence: float"))
    assert "the model, its version, what it was made from" in found.sentence


@pytest.mark.parametrize("subject", ["ai_score.computed.v1", "llm.trained.v1"])
def test_an_aggregate_may_tell_that_a_model_decided(find: Find, subject: str) -> None:
    assert find("ai-without-provenance", event(subject, "order_id: str"))
    assert find("short-retention", event(subject, "order_id: str"))
    assert not find("ai-without-provenance", event(subject, "order_id: str"), Settings(ai=("other",)))


# Flows, failure, owners, borders


def test_a_handler_that_declares_nothing_publishes_nothing(find: Find) -> None:
    assert not find("event-cycle", PLACED + handler("OrderPlacedV1"))


def test_what_a_handler_publishes_through_its_tx_counts_when_it_is_declared(find: Find) -> None:
    text = PLACED + handler("OrderPlacedV1", by="orders", policy=", publishes=[OrderPlacedV1]")
    assert find("publishes-what-it-reads", text)
    assert not find("event-cycle", text)


def test_a_chain_is_told_hop_by_hop_and_two_hops_are_fine(find: Find) -> None:
    def chain(length: int) -> str:
        names = ["orders", "billing", "stock", "depot"][: length + 1]
        text = "".join(f'{name} = Service("{name}", namespace="shop", owner="x")\n' for name in names)
        for name in names:
            text += f'\n@{name}.event("{name}_thing.done.v1", key="x")\nclass {name.title()}(Payload):\n    x: str\n'
        for number, (asks, answers) in enumerate(pairwise(names)):
            text += handler(asks.title(), by=answers, result=answers.title(), name=f"answer{number}")
            text += handler(answers.title(), by=asks, name=f"hear{number}")
        return text

    [found] = find("synchronous-chain", chain(3))
    assert found.where == "orders"
    assert found.sentence == "orders waits for an answer over 3 hops: orders → billing → stock → depot"
    assert not find("synchronous-chain", chain(2))


def test_skipping_is_fine_where_each_fact_stands_for_itself(find: Find) -> None:
    skip = ', policy=Policy(on_dead="skip", order="none")'
    assert not find("skips-dead-events", PLACED + handler("OrderPlacedV1", policy=skip))
    unkeyed = event("order.seen.v1", "where: str", key=None)
    assert not find("skips-dead-events", unkeyed + handler("OrderSeenV1", policy=', policy=Policy(on_dead="skip")'))


def test_fifty_deliveries_and_ten_minutes_are_the_most(find: Find) -> None:
    for policy, rule in (("max_attempts=51", "endless-retry"), ("deadline=601", "long-deadline")):
        assert find(rule, PLACED + handler("OrderPlacedV1", policy=f", policy=Policy({policy})"))
    for policy, rule in (("max_attempts=50", "endless-retry"), ("deadline=600", "long-deadline")):
        assert not find(rule, PLACED + handler("OrderPlacedV1", policy=f", policy=Policy({policy})"))


@pytest.mark.parametrize(
    ("broker", "found"),
    [
        ("redis://localhost:6379/0?retention=604799", True),
        ("redis://localhost:6379/0?retention=604800", False),
        ("redis://localhost:6379/0?retention=2592000", False),
        ("redis://localhost:6379/0?retention=2592001", True),
        ("redis://localhost:6379/0", False),
        ("nats://localhost:4222?retention=60", False),
    ],
)
def test_a_log_may_be_neither_shorter_than_the_class_nor_longer_than_it_allows(
    find: Find, broker: str, found: bool
) -> None:
    text = (
        "from posthouse import App\nfrom posthouse import Settings as AppSettings\n"
        "from posthouse.contracts.retention import RetentionClasses\n"
        'orders = Service("orders", namespace="shop", owner="x")\n'
        f'App(orders, broker="{broker}", settings=AppSettings(retention=RetentionClasses()))\n'
    ) + event("order.placed.v1", "order_id: str")
    assert bool(find("log-against-class", text)) is found
    assert not find("log-against-class", text.replace("retention=RetentionClasses()", ""))


def test_the_horizon_is_that_of_the_policy_and_of_the_broker(find: Find) -> None:
    def text(seconds: int) -> str:
        service = (
            "from posthouse import App\nfrom posthouse import Settings as AppSettings\n"
            'billing = Service("billing", namespace="shop", owner="x")\n'
            f"App(billing, settings=AppSettings(inbox_retention={seconds}))\n"
        )
        return service + PLACED + handler("OrderPlacedV1", policy=", policy=Policy(max_attempts=3, first_delay=10)")

    settings = Settings(redelivery=100.0)
    assert find("inbox-horizon", text(129), settings)
    assert not find("inbox-horizon", text(130), settings)


def test_a_version_that_ends_tomorrow_may_be_read_today(find: Find) -> None:
    ended = event("order.placed.v1", "order_id: str", more=", deprecated=date(2026, 11, 15)")
    ends = event("order.placed.v1", "order_id: str", more=", deprecated=date(2026, 11, 16)")
    assert find("deprecated-still-read", ended + handler("OrderPlacedV1"))
    assert not find("deprecated-still-read", ends + handler("OrderPlacedV1"))


def test_an_unowned_event_makes_its_topic_unowned(find: Find) -> None:
    text = PLACED + event("order.paid.v1", "order_id: str", more=', owner=""')
    [found] = find("unowned-topic", text)
    assert found.where == "shop.orders.order"
    assert found.sentence.endswith("no owner is declared for shop.orders.order.paid.v1")


def test_a_vendor_of_the_settings_has_its_own_home(find: Find) -> None:
    text = PLACED + "\ndef f():\n    import calendar\n"
    assert not find("vendor-import", text)
    [found] = find("vendor-import", text, Settings(vendors={"calendar": ("shop.pay",)}))
    assert found.sentence == "shop imports calendar, which belongs into shop.pay"
    assert not find("vendor-import", text, Settings(vendors={"calendar": ("shop",)}))


def test_a_brokers_client_is_a_matter_of_the_outbox_alone(find: Find) -> None:
    text = PLACED + "\ndef f():\n    from google.cloud import pubsub\n"
    assert find("around-the-outbox", text)
    assert not find("vendor-import", text)
    assert find("vendor-import", PLACED + "\ndef f():\n    from google.cloud import storage\n")


def test_a_network_call_outside_handlers_is_fine(find: Find) -> None:
    call = "\ndef ask():\n    import httpx\n    httpx.get('x')\n"
    assert not find("network-call-in-handler", PLACED + call)
    inside = handler("OrderPlacedV1").replace(
        "...", "import httpx\n    def work():\n        httpx.get('x')\n    httpx.Timeout(3)"
    )
    [found] = find("network-call-in-handler", PLACED + inside)
    assert "calls httpx.get" in found.sentence


@pytest.mark.parametrize(
    "body",
    [
        "async def f(x):\n    orders.outbox.add(x, OrderPlacedV1(order_id='1'), tenant='t1')\n",
        "def f(x, outbox):\n    outbox.add(x, OrderPlacedV1(order_id='1'), tenant='t1')\n",
        "async def f():\n    async with orders.transaction('t1') as tx:\n        tx.execute('DELETE FROM x')\n",
        "async def f(x):\n    async with orders.joined(x, 't1') as tx:\n        orders.start_saga(tx, x)\n",
        "async def f(event, tx: Tx):\n    tx.cancel('hold')\n",
        "async def f(thing, tx: 'Tx'):\n    thing.decide(tx, '1', x)\n",
    ],
)
def test_a_call_that_nobody_awaits_is_found(find: Find, body: str) -> None:
    assert find("call-not-awaited", PLACED + "\n" + body)
    awaited = body.replace("tx.execute", "await tx.execute").replace("tx.cancel", "await tx.cancel")
    for call in ("orders.outbox.add", "    outbox.add", "orders.start_saga", "thing.decide"):
        awaited = awaited.replace(call, f"    await {call.strip()}" if call[0] == " " else f"await {call}")
    assert not find("call-not-awaited", PLACED + "\n" + awaited.replace("def f(x, outbox)", "async def f(x, outbox)"))


@pytest.mark.parametrize(
    "body",
    [
        "def f(seen):\n    seen.add(1)\n",
        "def f(cursor):\n    cursor.execute('SELECT 1')\n",
        "def f(x):\n    with orders.outbox.joined(x, 't1') as tx:\n        tx.execute('SELECT 1')\n",
        "def f(x):\n    return orders.outbox.add(x, tenant='t1')\n",
        "def f(x):\n    orders.outbox.add_now(x, tenant='t1')\n",
    ],
)
def test_a_call_that_needs_no_await_is_left_alone(find: Find, body: str) -> None:
    assert not find("call-not-awaited", PLACED + "\n" + body)


NAMED = "\nasync def named(t):\n    async with orders.transaction(tenant=t):\n        ...\n"


@pytest.mark.parametrize(
    "call",
    [
        "orders.transaction()",
        "orders.joined(x)",
        "orders.record('', {}, x)",
        "orders.outbox.add(x)",
        "orders.outbox.add_now(x)",
    ],
)
def test_a_tenant_that_was_forgotten_is_found_where_others_are_named(find: Find, call: str) -> None:
    forgotten = f"\ndef forgotten(x):\n    return {call}\n"
    [found] = find("untenanted-event", PLACED + NAMED + forgotten)
    assert "forgotten names no tenant" in found.sentence
    assert not find("untenanted-event", PLACED + forgotten), "a service with one tenant leaves it out everywhere"
    assert not find("untenanted-event", PLACED + NAMED + forgotten.replace(")\n", ", **x)\n").replace("(, ", "("))


def test_transactions_of_a_driver_need_no_tenant(find: Find) -> None:
    theirs = "\ndef theirs(connection, seen):\n    seen.add(1)\n    return connection.transaction()\n"
    assert not find("untenanted-event", PLACED + NAMED + theirs)
