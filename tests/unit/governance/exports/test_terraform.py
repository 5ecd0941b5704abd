"""Terraform for Google Pub/Sub: the adapter's names and settings, and text that stays text."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import hcl2
import pytest
from msgspec.structs import replace

from posthouse.app import app_of
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.pubsub.admin import called
from posthouse.brokers.pubsub.broker import ATTEMPTS
from posthouse.contracts.retention import CLASSES, DAY, RetentionClasses
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import Bundle
from posthouse.governance.document import Document
from posthouse.governance.exports import Source, export, thawed
from posthouse.governance.exports.terraform import account_id
from posthouse.governance.exports.terraform.hcl import assignment, quoted
from posthouse.survey import with_missing
from posthouse.topology import merged
from tests.unit.governance.exports.catalogues import HOSTILE, SERVICES, SHOP, orders
from tests.unit.governance.exports.without_provider import without_provider

FOREIGN = {"shop.stock.item", "shop.stock.item.dlq"}


def parsed(text: str) -> Any:
    return hcl2.loads(text)


def unquoted(node: Any) -> Any:
    """python-hcl2 keeps the quotes of strings."""
    if isinstance(node, dict):
        return {unquoted(name): unquoted(value) for name, value in node.items() if name != "__is_block__"}
    if isinstance(node, list):
        return [unquoted(inner) for inner in node]
    return json.loads(node) if isinstance(node, str) and node.startswith('"') else node


def catalogue(source: Source = SHOP) -> dict[str, Any]:
    found, *_ = unquoted(parsed(export(source, "terraform")["catalogue.tf"])["locals"])
    return cast("dict[str, Any]", found)


def resources() -> dict[tuple[str, str], Any]:
    blocks = unquoted(parsed(export(SHOP, "terraform")["main.tf"])["resource"])
    return {(kind, name): body for block in blocks for kind, named in block.items() for name, body in named.items()}


def default(name: str) -> Any:
    variables = unquoted(parsed(export(SHOP, "terraform")["variables.tf"])["variable"])
    return next(block[name]["default"] for block in variables if name in block)


def with_events(**changes: Any) -> Source:
    events = tuple(replace(entry, **changes) for entry in SHOP.document.events)
    return replace(SHOP, document=replace(SHOP.document, events=events))


def test_topics_and_subscriptions_are_called_as_the_topology_command_calls_them() -> None:
    wanted = {thing.called for thing in with_missing(merged(SERVICES), [], called)}
    made = catalogue()
    names = {f"topic {name}" for name in made["topics"]} | {f"subscription {name}" for name in made["subscriptions"]}
    assert names == wanted - {f"topic {name}" for name in FOREIGN}
    assert "subscription billing.shop.orders.order.sub" in names


def test_the_settings_are_those_with_which_the_adapter_makes_subscriptions() -> None:
    made = inspect.signature(PubSubBroker).parameters
    assert default("lease") == made["lease"].default
    assert default("lost_topic") == made["dead_letters"].default
    assert default("subscription_retention") == f"{made['retention'].default:.0f}s"
    subscription = resources()["google_pubsub_subscription", "subscription"]
    assert subscription["enable_message_ordering"] is True
    assert subscription["retain_acked_messages"] is True
    assert subscription["expiration_policy"] == [{"ttl": ""}]
    assert subscription["dead_letter_policy"][0]["max_delivery_attempts"] == ATTEMPTS
    assert default("exactly_once") is False


def test_a_topic_is_kept_by_the_longest_class_of_its_events() -> None:
    topics = catalogue()["topics"]
    assert topics["shop.orders.order"]["retention"] == "warm"
    assert topics["shop.billing.invoice"]["retention"] == "cold"
    kept = {"shop.orders.order.placed.v1": "warm", "shop.orders.order.placed.v2": "cold"}
    events = tuple(replace(entry, retention=kept.get(entry.subject, "hot")) for entry in SHOP.document.events)
    mixed = catalogue(replace(SHOP, document=replace(SHOP.document, events=events)))["topics"]
    assert mixed["shop.orders.order"]["retention"] == "cold"
    assert topics["shop.parcels.parcel"]["retention"] == "hot"
    assert topics["shop.orders.order.dlq"] == topics["shop.orders.order"]
    assert topics["shop.orders.order"]["labels"]["posthouse_owner"] == "team-checkout"


def test_the_bucket_of_the_archive_deletes_what_its_class_keeps_no_longer() -> None:
    classes = RetentionClasses()
    assert default("archive_days") == {name: classes.of(name).archive / DAY for name in CLASSES}
    bucket = resources()["google_storage_bucket", "archive"]
    assert default("archive_bucket") == "", "none is made unless it is named"
    assert "var.archive_bucket" in bucket["count"]
    (deleting,) = bucket["dynamic"]
    (rule,) = deleting["lifecycle_rule"]["content"]
    assert rule["action"] == [{"type": "Delete"}]
    (condition,) = rule["condition"]
    assert condition["age"] == "${lifecycle_rule.value + var.archive_grace_days}"
    assert condition["matches_prefix"] == ["${var.archive_prefixes[lifecycle_rule.key]}"]
    assert default("archive_prefixes") == {name: f"data/{name}/" for name in CLASSES}
    assert bucket["public_access_prevention"] == "enforced"


def test_where_data_must_stay_has_no_default() -> None:
    assert catalogue()["topics"]["shop.orders.order"]["residency"] == ["eu-west"]
    limited = export(SHOP, "terraform")["catalogue.tf"]
    free = export(with_events(residency=None), "terraform")["catalogue.tf"]
    assert "default" not in limited
    assert 'setsubtract(["eu-west"]' in limited
    assert 'variable "regions"' not in free


def test_a_service_writes_to_its_own_topics_and_to_the_dead_letters_of_what_it_reads() -> None:
    made = catalogue()
    granted = {(grant["service"], grant["topic"]) for grant in made["publishers"].values()}
    assert granted == {
        ("orders", "shop.orders.order"),
        ("billing", "shop.billing.invoice"),
        ("billing", "shop.orders.order.dlq"),
        ("parcels", "shop.parcels.parcel"),
        ("parcels", "shop.billing.invoice.dlq"),
        ("parcels", "shop.stock.item.dlq"),
        ("hotel", "hotel.guest"),
        ("hotel", "shop.orders.order.dlq"),
    }
    assert made["subscriptions"]["parcels.pack.shop.billing.invoice.sub"]["service"] == "parcels"
    assert made["services"]["orders"] == "orders-service"


def test_a_service_may_look_at_every_topic_that_it_asks_for_when_it_starts() -> None:
    granted = {(grant["service"], grant["topic"]) for grant in catalogue()["viewers"].values()}
    assert granted == {
        (service.name, topic) for service in SERVICES for topic in app_of(service).opened.topology().topics
    }


def test_only_schemas_that_pubsub_knows_are_published() -> None:
    schemas = catalogue()["schemas"]
    assert list(schemas) == ["shop.parcels.parcel.sent.v1"]
    assert schemas["shop.parcels.parcel.sent.v1"]["type"] == "AVRO"
    assert json.loads(schemas["shop.parcels.parcel.sent.v1"]["definition"])["name"] == "ParcelSent"


@pytest.mark.parametrize(
    ("schema", "published"),
    [
        ('syntax = "proto3";\nmessage A {\n  string id = 1;\n}\n', True),
        ('syntax = "proto3";\nmessage A {\n  B b = 1;\n}\nmessage B {\n}\n', False),
        ('syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\nmessage A {\n}\n', False),
    ],
)
def test_protobuf_is_published_where_it_is_one_message_alone(schema: str, published: bool) -> None:
    made = export(with_events(format="protobuf", schema=schema), "terraform")["catalogue.tf"]
    assert ('"PROTOCOL_BUFFER"' in made) is published
    assert ("is not here: Pub/Sub takes protobuf with one message" in made) is not published


def test_names_that_google_does_not_take_are_refused_all_at_once() -> None:
    topics = tuple(replace(topic, name=f"goog{topic.name}") for topic in SHOP.document.topics)
    handlers = tuple(replace(handler, service="Bad ${name}") for handler in SHOP.document.handlers)
    with pytest.raises(ConfigurationError) as caught:
        export(Source(document=replace(SHOP.document, topics=topics, handlers=handlers)), "terraform")
    assert any("'googshop.orders.order' cannot be the name of a topic" in problem for problem in caught.value.problems)
    assert any("'Bad ${name}' cannot be the name of a service account" in said for said in caught.value.problems)


def test_frozen_files_are_refused_since_they_do_not_say_where_data_must_stay() -> None:
    with pytest.raises(ConfigurationError, match="do not say which data must stay where"):
        export(thawed(Bundle()), "terraform")


def test_account_ids_fit_and_differ() -> None:
    names = ["iam", "a", "lock_integration", "x" * 40, "x" * 41, "very_long_service_name_of_ours"]
    made = [account_id(name) for name in names]
    assert made[:3] == ["iam-service", "a-service", "lock-integration-service"]
    assert len(set(made)) == len(names)
    assert all(re.fullmatch(r"[a-z](?:[-a-z0-9]{4,28}[a-z0-9])", name) for name in made)


def test_two_services_never_share_an_account() -> None:
    handlers = tuple(
        replace(handler, service=name) for handler, name in zip(SHOP.document.handlers, ("a-b", "a_b") * 2, strict=True)
    )
    document: Document = replace(SHOP.document, handlers=handlers)
    with pytest.raises(ConfigurationError, match="'a-b' and 'a_b' would share the service account a-b-service"):
        export(Source(document=document), "terraform")


@pytest.mark.parametrize(
    "text", [HOSTILE, "${x}", "$${x}", "$$${x}", "%{x}", "%%{x}", "\\${x}", '"', "a\\", "\n", "$", "${"]
)
def test_no_string_begins_an_interpolation(text: str) -> None:
    written = quoted(text)
    assert not re.search(r"[$%]\{", written)
    assert "\n" not in written
    assert json.loads(written) == text


# What Terraform itself says.

NO_TERRAFORM = "terraform is not installed: the files were parsed by python-hcl2 only, NOT by Terraform"


@pytest.fixture
def terraform() -> str:
    found = shutil.which("terraform")
    if found is None:
        pytest.skip(NO_TERRAFORM)
    return found


def run(terraform: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    kept = {"TF_CLI_CONFIG_FILE": os.environ["TF_CLI_CONFIG_FILE"]} if "TF_CLI_CONFIG_FILE" in os.environ else {}
    env = {**settings, **kept, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    command = [terraform, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)


def write(folder: Path, source: Source = SHOP) -> None:
    for name, text in export(source, "terraform").items():
        (folder / name).write_text(text, encoding="utf-8")


def test_the_files_are_laid_out_as_terraform_fmt_does(terraform: str, tmp_path: Path) -> None:
    write(tmp_path, with_events(owner=HOSTILE, residency=HOSTILE))
    done = run(terraform, tmp_path, "fmt", "-check", "-diff", "-no-color", "-recursive")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_terraform_reads_every_text_as_it_was_written(terraform: str, tmp_path: Path) -> None:
    texts = [
        HOSTILE,
        "${path.module}",
        "$${x}",
        "$$${x}",
        "%{ if true }x%{ endif }",
        "%%{x}",
        "\\${x}",
        "a\\",
        "x\ty",
        "${",
    ]
    (tmp_path / "main.tf").write_text(
        f'locals {{\n{assignment("texts", texts, "  ")}\n}}\noutput "texts" {{\n  value = local.texts\n}}\n'
    )
    assert run(terraform, tmp_path, "init", "-no-color").returncode == 0
    done = run(terraform, tmp_path, "apply", "-auto-approve", "-no-color")
    assert done.returncode == 0, done.stderr
    assert json.loads(run(terraform, tmp_path, "output", "-json", "texts").stdout) == texts


def test_terraform_reads_the_catalogue_and_wants_the_regions(terraform: str, tmp_path: Path) -> None:
    made = export(with_events(residency=HOSTILE), "terraform")
    (tmp_path / "catalogue.tf").write_text(made["catalogue.tf"])
    (tmp_path / "variables.tf").write_text(made["variables.tf"])
    (tmp_path / "out.tf").write_text('output "made" {\n  value = [local.topics, local.persistence]\n}\n')
    (tmp_path / "project.auto.tfvars.json").write_text('{"project": "acme", "regions": {}}')
    assert run(terraform, tmp_path, "init", "-no-color").returncode == 0
    refused = run(terraform, tmp_path, "apply", "-auto-approve", "-no-color")
    assert "Say the regions of each place" in refused.stderr
    given = {"project": "acme", "regions": {HOSTILE: ["europe-west1"]}}
    (tmp_path / "project.auto.tfvars.json").write_text(json.dumps(given))
    done = run(terraform, tmp_path, "apply", "-auto-approve", "-no-color")
    assert done.returncode == 0, done.stderr
    topics, persistence = json.loads(run(terraform, tmp_path, "output", "-json", "made").stdout)
    assert topics["shop.orders.order"]["residency"] == [HOSTILE]
    assert persistence["shop.orders.order.dlq"] == ["europe-west1"]
    assert app_of(orders).opened.topology().topics[0] in topics


def test_events_that_must_stay_in_two_places_stay_where_both_are(terraform: str, tmp_path: Path) -> None:
    first, *rest = SHOP.document.events
    events = (replace(first, topic="shop.orders.order", residency="eu"), *rest)
    made = export(replace(SHOP, document=replace(SHOP.document, events=events)), "terraform")
    (tmp_path / "catalogue.tf").write_text(made["catalogue.tf"])
    (tmp_path / "out.tf").write_text('output "made" {\n  value = local.persistence\n}\n')
    regions = {"eu": ["b", "a", "c"], "eu-west": ["c", "b"]}
    (tmp_path / "x.auto.tfvars.json").write_text(json.dumps({"regions": regions}))
    assert run(terraform, tmp_path, "init", "-no-color").returncode == 0
    assert run(terraform, tmp_path, "apply", "-auto-approve", "-no-color").returncode == 0
    persistence = json.loads(run(terraform, tmp_path, "output", "-json", "made").stdout)
    assert persistence["shop.orders.order"] == ["b", "c"]
    assert persistence["shop.parcels.parcel"] == []


REGIONS = {"eu-west": ["europe-west1", "europe-west4"]}


def applied(
    terraform: str, folder: Path, source: Source, **variables: object
) -> tuple[dict[tuple[str, str], Any], str]:
    """What Terraform makes of every expression, by kind of resource and key; and what it complains about."""
    write(folder, source)
    (folder / "main.tf").write_text(without_provider((folder / "main.tf").read_text()))
    (folder / "given.auto.tfvars.json").write_text(json.dumps({"project": "acme", **variables}))
    begun = run(terraform, folder, "init", "-no-color")
    assert begun.returncode == 0, begun.stderr
    done = run(terraform, folder, "apply", "-auto-approve", "-no-color")
    state = json.loads(run(terraform, folder, "show", "-json").stdout).get("values", {}).get("root_module", {})
    found = {(one["name"], str(one.get("index", ""))): one["values"]["output"] for one in state.get("resources", [])}
    return found, done.stderr if done.returncode else ""


def test_terraform_evaluates_every_resource(terraform: str, tmp_path: Path) -> None:
    made, complaint = applied(terraform, tmp_path, SHOP, regions=REGIONS)
    assert complaint == ""
    topic = made["google_pubsub_topic__topic", "shop.orders.order"]
    assert topic["message_storage_policy"] == [{"allowed_persistence_regions": ["europe-west1", "europe-west4"]}]
    assert topic["message_retention_duration"] == "604800s"
    place = made["google_pubsub_subscription__subscription", "billing.shop.orders.order.sub"]
    assert (place["topic"], place["push_config"]) == ("google_pubsub_topic", [])
    assert place["enable_exactly_once_delivery"] is False
    assert place["retry_policy"] == {"minimum_backoff": "10s", "maximum_backoff": "600s"}
    foreign = made["google_pubsub_subscription__subscription", "parcels.shop.stock.item.sub"]
    assert foreign["topic"] == "projects/acme/topics/shop.stock.item"
    assert made["google_pubsub_topic_iam_member__publisher", "orders shop.orders.order"]["topic"] == "shop.orders.order"
    assert made["google_pubsub_topic_iam_member__viewer", "parcels shop.stock.item"]["topic"] == "shop.stock.item"
    assert not [kind for kind, _ in made if kind.endswith("forwarder")]


def test_terraform_evaluates_push_exactly_once_and_forwarding(terraform: str, tmp_path: Path) -> None:
    push = {"billing": {"endpoint": "https://x/y", "account": "push@acme"}}
    made, complaint = applied(
        terraform, tmp_path, SHOP, regions=REGIONS, exactly_once=True, forward_lost=True, push=push
    )
    assert complaint == ""
    pushed = made["google_pubsub_subscription__subscription", "billing.shop.orders.order.sub"]
    token = {"service_account_email": "push@acme", "audience": "https://x/y"}
    assert pushed["push_config"] == [{"push_endpoint": "https://x/y", "oidc_token": token}]
    assert pushed["enable_exactly_once_delivery"] is False
    pulled = made["google_pubsub_subscription__subscription", "hotel.shop.orders.order.sub"]
    assert pulled["enable_exactly_once_delivery"] is True
    agent = "serviceAccount:service-123@gcp-sa-pubsub.iam.gserviceaccount.com"
    assert made["google_pubsub_topic_iam_member__forwarder", "0"]["member"] == agent
    assert made["google_pubsub_subscription_iam_member__forwarder", "hotel.shop.orders.order.sub"]["member"] == agent


def test_a_catalogue_whose_data_may_be_anywhere_needs_no_regions(terraform: str, tmp_path: Path) -> None:
    made, complaint = applied(terraform, tmp_path, with_events(residency=None, retention="cold"))
    assert complaint == ""
    assert made["google_pubsub_topic__topic", "shop.orders.order"]["message_storage_policy"] == []


def test_how_long_a_topic_keeps_messages_is_said_by_class(terraform: str, tmp_path: Path) -> None:
    kept = {"hot": "600s", "warm": "700s", "cold": "800s"}
    made, complaint = applied(terraform, tmp_path, SHOP, regions=REGIONS, topic_retention=kept)
    assert complaint == ""
    names = ("shop.parcels.parcel", "shop.orders.order", "shop.billing.invoice.dlq")
    found = [made["google_pubsub_topic__topic", name]["message_retention_duration"] for name in names]
    assert found == list(kept.values())


def test_terraform_refuses_a_topic_that_could_be_kept_nowhere(terraform: str, tmp_path: Path) -> None:
    _, complaint = applied(terraform, tmp_path, SHOP, regions={"eu-west": []})
    assert "no region is in" in complaint


@pytest.mark.slow
def test_terraform_validates_the_whole(terraform: str, tmp_path: Path) -> None:
    write(tmp_path)
    begun = run(terraform, tmp_path, "init", "-backend=false", "-no-color")
    if begun.returncode != 0:
        assert "Failed to query available provider packages" in begun.stderr, begun.stderr
        reason = " ".join(begun.stderr.split())[:300]
        pytest.skip(f"THE PROVIDER hashicorp/google COULD NOT BE HAD, `terraform validate` was NOT run: {reason}")
    done = run(terraform, tmp_path, "validate", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
