"""`posthouse stream`: what a person sees of a stream, and what is noted of its end."""

from __future__ import annotations

import sys

import pytest

from posthouse.service import Service
from tests.unit.cli.conftest import SHOP, Project

MORE = """

@orders.event("order.erased.v1", key="order_id")
class OrderErased:
    order_id: str


def erase(count: int) -> OrderErased:
    return OrderErased(order_id="o1")


orders_book = orders.aggregate(
    "order", initial=int, evolve=lambda count, _: count + 1, events=(OrderPlaced, OrderErased), delete=erase
)
"""


@pytest.fixture
def project(project: Project) -> Project:
    """With an order that was placed twice."""
    project.write("shop.py", SHOP + MORE)

    async def work(service: Service) -> None:
        shop = sys.modules["shop"]
        async with service.transaction("t1") as tx:
            placed = [shop.OrderPlaced(order_id="o1", total_cents=cents) for cents in (1, 2)]
            await shop.orders_book.append(tx, "o1", placed, expected="new")

    project.with_service(work)
    return project


O1 = ("shop", "order", "o1", "--tenant", "t1")


def test_a_stream_is_shown_with_where_it_stands(project: Project) -> None:
    result = project.run("stream", "show", *O1, columns=200)
    assert result.exit_code == 0, result.output
    assert "order 'o1' of tenant 't1' is open, at version 2: 2 events" in result.stdout
    assert result.stdout.count("shop.orders.order.placed.v1") == 2
    found = project.json("stream", "show", *O1)
    assert isinstance(found, dict)
    assert [event["data"]["total_cents"] for event in found["events"]] == [1, 2]


def test_a_stream_is_archived_restored_and_deleted_and_the_log_says_by_whom(project: Project) -> None:
    for verb in ("archive", "restore", "delete"):
        yes = ("--yes",) if verb == "delete" else ()
        result = project.run("stream", verb, *O1, "--by", "ann", "--why", "asked by mail", *yes)
        assert result.exit_code == 0, result.output
        again = project.run("stream", verb, *O1, *yes)
        assert again.exit_code == 2, again.output
        assert {"archive": "is archived already", "restore": "is not archived", "delete": "was deleted already"}[
            verb
        ] in again.stderr
    found = project.json("stream", "show", *O1)
    assert isinstance(found, dict)
    assert (found["state"], found["version"]) == ("deleted", 3)
    assert [event["type"] for event in found["events"]] == ["shop.orders.order.erased.v1"]
    actions = project.json("actions", "shop")
    assert isinstance(actions, list)
    assert [(one["verb"], one["by"], one["why"], one["target"]) for one in actions] == [
        (f"stream {verb}", "ann", "asked by mail", "stream order o1") for verb in ("delete", "restore", "archive")
    ]
    assert actions[0]["changed"] == {"state": ["open", "deleted"], "version": [2, 3]}


def test_nothing_is_deleted_unasked(project: Project) -> None:
    assert project.run("stream", "delete", *O1, input="n\n").exit_code != 0
    found = project.json("stream", "show", *O1)
    assert isinstance(found, dict)
    assert found["state"] == "open"


def test_what_is_not_there_is_named(project: Project) -> None:
    result = project.run("stream", "archive", "shop", "order", "o2", "--tenant", "t1")
    assert result.exit_code == 2
    assert "there is no order 'o2' of tenant 't1'" in result.stderr
    result = project.run("stream", "show", "shop", "ordre", "o1", "--tenant", "t1")
    assert "has no aggregate 'ordre'. Did you mean 'order'?" in " ".join(result.stderr.split())


def test_a_stream_is_written_into_a_file_and_deleted_only_once_it_is_there(project: Project) -> None:
    written = project.run("stream", "export", *O1, "--to", "copy.jsonl", columns=300)
    assert written.exit_code == 0, written.output
    assert "2 events in copy.jsonl, sha256" in written.stdout
    checked = project.run("stream", "check", "copy.jsonl", columns=300)
    assert "order 'o1' of tenant 't1', open at version 2: 2 events, whole" in checked.stdout
    (project.folder / "taken.jsonl").write_text("somebody's notes")
    refused = project.run("stream", "delete", *O1, "--yes", "--export", "taken.jsonl")
    assert refused.exit_code == 2, refused.output
    done = project.run("stream", "delete", *O1, "--yes", "--export", "kept.jsonl", "--by", "ann")
    assert done.exit_code == 0, done.output
    assert (project.folder / "kept.jsonl").read_bytes() == (project.folder / "copy.jsonl").read_bytes()
    (act,) = project.json("actions", "shop")  # type: ignore[misc]
    assert "kept.jsonl, 2 events, sha256" in act["changed"]["export"][1]  # type: ignore[has-type]
    (project.folder / "kept.jsonl").write_bytes((project.folder / "copy.jsonl").read_bytes()[:-9])
    assert project.run("stream", "check", "kept.jsonl").exit_code == 2
