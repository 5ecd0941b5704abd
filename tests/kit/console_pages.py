"""What the pages of the estate must say of an application in trouble, whatever its store is."""

from __future__ import annotations

from typing import Any

from tests.kit.console import Asking
from tests.kit.waiting import eventually


async def check_home(asking: Asking) -> None:
    """The dead event, the one that waits behind it, and the saga that was not undone are told of, with their meaning and a press."""
    home = await asking.get("/home")
    found = {(one["kind"], one["of"]): one for one in home["troubles"]}
    dead = found["dead", "billing"]
    assert (dead["gravity"], dead["count"]) == ("now", 1)
    assert dead["means"] == "Its attempts are spent, or no attempt can help; its key waits."
    assert dead["do"] == "Mend the cause and retry; or edit; or skip."
    assert dead["press"] == [{"label": "Held events", "to": "/held?service=billing&state=dead&consumer=billing"}]
    assert found["blocked", "billing"]["gravity"] == "wait"
    assert found["compensation failed", "delivery"]["gravity"] == "now"
    assert found["partial", "delivery"]["count"] == 1
    assert found["nobody runs", "timers"]["gravity"] == "now", "a deadline of a saga waits"
    assert ("nobody runs", "relay") not in found, "nothing waits for it"
    assert home["verdict"] == "adds up", home["sentence"]
    assert "a person" in home["sentence"]
    (invoice,) = [one for one in home["consumers"] if one["name"] == "billing"]
    (line,) = invoice["topics"]
    assert line["committed"] == 6
    assert line["committed"] == line["applied"] + line["in_flight"] + line["held"] + line["given_up"]
    assert invoice["held"] == {"dead": 1, "blocked": 1}
    (service,) = home["services"]
    assert (service["name"], service["store"], service["broker"]) == ("orders, billing", True, True)


async def check_charts(asking: Asking) -> None:
    """Every look adds a point to each of the charts."""

    async def two_points() -> Any:
        return await asking.get("/home")

    home = await eventually(two_points, "a second look", right=lambda found: len(found["times"]) >= 2, pause=0.2)
    assert {len(values) for values in home["charts"].values()} == {len(home["times"])}
    assert home["charts"]["held"][-1] == 2
    assert home["charts"]["applied"][-1] == 0


async def check_map(asking: Asking) -> None:
    """Who writes to the topic and who reads it, each with its kind and its trouble."""
    found = await asking.get("/map")
    nodes = {node["id"]: node for node in found["nodes"]}
    assert {node["kind"] for node in nodes.values()} == {"service", "topic", "consumer", "saga", "read model"}
    edges = {(edge["source"], edge["target"]) for edge in found["edges"]}
    assert ("service:orders", "topic:shop.orders.order") in edges
    assert ("topic:shop.orders.order", "consumer:billing") in edges
    assert all(source in nodes and target in nodes for source, target in edges)
    invoice = nodes["consumer:billing"]
    assert (invoice["gravity"], invoice["held"]) == ("now", 2)
    assert nodes["consumer:orders.delivery"]["gravity"] == "now"
    assert nodes["consumer:billing.listings"]["gravity"] is None
    assert invoice["troubles"][0] == "1 event is dead in billing."


async def check_health(asking: Asking) -> None:
    """What the doctor says, without a check that fails."""
    health = await asking.get("/health")
    assert [(one["part"], one["service"]) for one in health["examined"]].count(("store", "orders, billing")) == 1
    assert health["failed"] == 0, health
    broker = next(one for one in health["examined"] if one["part"] == "broker")
    assert all(clause["because"] for clause in broker["promise"])


async def check_tenants(asking: Asking) -> None:
    """The tenant that said all of it, and what cannot be told."""
    found = await asking.get("/tenants")
    (tenant,) = [one for one in found["items"] if one["tenant"] == "t1"]
    assert (tenant["events"], tenant["held"], tenant["dead"]) == (6, 2, 1)
    assert tenant["share"] == 6 / found["looked"]
    assert tenant["oldest"] >= 0
    assert any("nobody can tell it of one tenant" in note for note in found["notes"])


async def check_catalogue(asking: Asking) -> None:
    """The event, its schema as text, who reads which field, and when it was applied."""
    listed = await asking.get("/catalogue")
    subject = "shop.orders.order.placed.v1"
    (line,) = [one for one in listed["events"] if one["subject"] == subject]
    assert (line["key"], line["readers"]) == ("order_id", 3)
    event = await asking.get("/catalogue/events/{subject}", subject=subject)
    assert isinstance(event["schema"], str)
    fields = {field["name"]: field for field in event["fields"]}
    assert set(fields) == {"order_id", "total_cents"}
    assert fields["total_cents"]["type"] == "integer"
    assert fields["total_cents"]["required"]
    assert {*fields["total_cents"]["readers"], *fields["total_cents"]["perhaps"]} >= {"billing"}
    assert {reader["consumer"] for reader in event["readers"]} == {
        "billing",
        "billing.listings",
        "orders.delivery",
    }
    assert event["published"].keys() == {"orders"}
    changes = await asking.get("/catalogue/changes")
    assert "no frozen catalogue" in changes["sentence"]


CHECKS = (check_home, check_charts, check_map, check_health, check_tenants, check_catalogue)
