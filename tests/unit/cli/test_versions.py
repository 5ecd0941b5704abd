"""`posthouse schema versions` and `posthouse schema retire`: the way out of a version."""

from __future__ import annotations

import asyncio
import json
import time
from typing import cast

from posthouse.app import app_of
from posthouse.cli.target import load
from posthouse.contracts.retirement import RETIRED
from posthouse.store import VersionUse
from tests.unit.cli.conftest import Project

DAY = 86_400.0
V1 = "shop.orders.order.placed.v1"

SHOP = """
from datetime import date

from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", schemas="event-schemas")
billing = Service("billing", namespace="shop")
mail = Service("mail", namespace="shop")


@orders.event("order.placed.v1", key="order_id", deprecated=date(2027, 1, 31))
class Placed(Payload):
    order_id: str


@orders.event("order.placed.v2", key="order_id")
class PlacedInCents(Payload):
    order_id: str
    cents: int = 0


@billing.on(Placed)
async def invoice(event: Event[Placed], tx: Tx) -> None:
    pass


@mail.on(PlacedInCents)
async def thank(event: Event[PlacedInCents], tx: Tx) -> None:
    pass
"""

DOWNCAST = """

@orders.downcast(PlacedInCents, to=Placed)
def as_placed(new: PlacedInCents) -> Placed:
    return Placed(order_id=new.order_id)
"""

ALL = ("shop:orders", "shop:billing", "shop:mail")


def watched(project: Project, *uses: VersionUse, since: float = 30 * DAY) -> None:
    """Every service runs for so many seconds; and these were seen besides, by the store of their party's service."""
    project.write("shop.py", SHOP)
    assert project.run("catalog", "freeze", *ALL).exit_code == 0
    see(project, *uses, since=since)


def see(project: Project, *uses: VersionUse, since: float = 30 * DAY) -> None:
    project.forget()
    now = time.time()

    async def work() -> None:
        for target in ALL:
            service = load(target)
            await app_of(service).store.upgrade()
            mine = [one for one in uses if one.party == service.name]
            await app_of(service).store.version_usage.note(
                [VersionUse("running", service.name, "", now - since, now), *mine]
            )
            await service.aclose()

    asyncio.run(work())


def applied(days_ago: float, subject: str = V1) -> VersionUse:
    at = time.time() - days_ago * DAY
    return VersionUse("applied", "billing", subject, at - 100 * DAY, at)


def test_who_uses_which_version_is_shown_with_dates(project: Project) -> None:
    watched(project, applied(2))
    result = project.run("schema", "versions", *ALL)
    assert result.exit_code == 0, result.stderr
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 2 * DAY))
    [first] = [line for line in result.stdout.splitlines() if line.startswith(V1)]
    assert "orders (never seen)" in first
    assert f"billing ({day}" in first
    assert "2027-01-31" in first
    assert "next is shop.orders.order.placed.v2" in first


def test_versions_are_one_json_value(project: Project) -> None:
    watched(project, seen := applied(2))
    found = cast("dict[str, list[dict[str, object]]]", project.json("schema", "versions", *ALL))
    assert [(line["subject"], line["consumers"]) for line in found["versions"]] == [
        (V1, {"billing": seen.last_at}),
        ("shop.orders.order.placed.v2", {"mail": None}),
    ]
    assert [line["deprecated"] for line in found["versions"]] == ["2027-01-31", None]


def test_versions_that_are_published_together_are_shown_as_such(project: Project) -> None:
    project.write("shop.py", SHOP + DOWNCAST)
    see(project)
    assert "published beside shop.orders.order.placed.v2" in project.run("schema", "versions", *ALL).stdout


def test_a_version_in_use_is_not_retired_and_its_user_is_named(project: Project) -> None:
    watched(project, applied(3))
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert f"{V1}: billing applied it 3 days ago" in result.stderr
    assert not (project.folder / "event-schemas" / RETIRED).exists()


def test_a_version_that_was_published_lately_is_not_retired(project: Project) -> None:
    now = time.time()
    watched(project, VersionUse("published", "orders", V1, now - 60, now - 60))
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert "orders published it today" in result.stderr


def test_a_version_that_the_code_still_publishes_beside_another_is_not_retired(project: Project) -> None:
    watched(project)
    project.write("shop.py", SHOP + DOWNCAST)
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert "orders still publishes it beside a newer version" in result.stderr


def test_readers_of_the_topic_must_be_named_or_vouched_for(project: Project) -> None:
    watched(project)
    result = project.run("schema", "retire", V1, "shop:orders", "shop:billing")
    assert result.exit_code == 1
    assert "mail reads its topic and was not asked" in result.stderr
    assert project.run("schema", "retire", V1, *ALL[:2], "--unseen", "mail").exit_code == 0


def test_a_service_that_was_not_watched_for_seven_days_tells_nothing(project: Project) -> None:
    watched(project, since=2 * DAY)
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert "orders is watched since" in result.stderr


def test_a_quiet_version_is_retired_with_its_day_and_cannot_be_declared_any_more(project: Project) -> None:
    watched(project, applied(8), applied(0.1, "shop.orders.order.placed.v2"))
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 0, result.stderr
    today = time.strftime("%Y-%m-%d", time.gmtime())
    listed = json.loads((project.folder / "event-schemas" / RETIRED).read_text())
    assert listed == {"retired": {V1: today}}
    after = project.run("schema", "versions", *ALL)
    assert after.exit_code == 2
    assert f"{V1} was retired on {today} and cannot be published any more" in after.stderr


def published(subject: str, first_days_ago: float, last_days_ago: float) -> VersionUse:
    now = time.time()
    return VersionUse("published", "orders", subject, now - first_days_ago * DAY, now - last_days_ago * DAY)


def test_readers_have_two_weeks_and_the_operators_log_keeps_who_cut_over(project: Project) -> None:
    watched(project, published(V1, 100, 8), published("shop.orders.order.placed.v2", 18, 1))
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert "it was published beside shop.orders.order.placed.v2 for 10 days" in result.stderr
    assert project.run("schema", "retire", V1, *ALL, "--early").exit_code == 2, "it says why"
    done = project.run("schema", "retire", V1, *ALL, "--early", "--by", "ann", "--why", "nobody else reads it")
    assert done.exit_code == 0, done.stderr
    day = time.strftime("%Y-%m-%d", time.gmtime())
    (act,) = _acts(project)
    assert (act["verb"], act["by"], act["why"], act["target"], act["outcome"]) == (
        "schema retire",
        "ann",
        "nobody else reads it",
        V1,
        "done",
    )
    assert act["changed"] == {"retired": [None, day], "days beside the next": [None, 10.0]}


def test_a_version_that_was_published_beside_the_next_for_two_weeks_goes_without_more_words(project: Project) -> None:
    watched(project, published(V1, 100, 8), published("shop.orders.order.placed.v2", 30, 1))
    assert project.run("schema", "retire", V1, *ALL).exit_code == 0
    assert [act["target"] for act in _acts(project)] == [V1]


def _acts(project: Project) -> list[dict[str, object]]:
    """A retired version is not declared any more before anything else is asked."""
    (project.folder / "event-schemas" / RETIRED).unlink()
    return cast("list[dict[str, object]]", project.json("actions", "shop:orders"))


def test_retiring_again_says_the_day_it_was_retired(project: Project) -> None:
    watched(project)
    text = SHOP[: SHOP.index("@orders.event")] + SHOP[SHOP.index('@orders.event("order.placed.v2"') :]
    text = text.replace("@billing.on(Placed)", "@billing.on(PlacedInCents)").replace(
        "Event[Placed]", "Event[PlacedInCents]"
    )
    (project.folder / "event-schemas" / RETIRED).write_text(json.dumps({"retired": {V1: "2026-01-02"}}))
    project.write("shop.py", text)
    found = project.json("schema", "retire", V1, *ALL)
    assert found == {"subject": V1, "retired": "2026-01-02", "problems": []}


def test_a_version_whose_declaration_is_gone_can_still_be_retired(project: Project) -> None:
    watched(project, applied(3))
    text = SHOP[: SHOP.index("@orders.event")] + SHOP[SHOP.index('@orders.event("order.placed.v2"') :]
    text = text.replace("@billing.on(Placed)", "@billing.on(PlacedInCents)").replace(
        "Event[Placed]", "Event[PlacedInCents]"
    )
    project.write("shop.py", text)
    result = project.run("schema", "retire", V1, *ALL)
    assert result.exit_code == 1
    assert "billing applied it 3 days ago" in result.stderr
    assert "belongs to orders: name that service too" in project.run("schema", "retire", V1, "shop:mail").stderr


def test_an_unknown_version_is_refused_with_a_suggestion(project: Project) -> None:
    watched(project)
    result = project.run("schema", "retire", "shop.orders.order.place.v1", *ALL)
    assert result.exit_code == 2
    assert f"Did you mean '{V1}'?" in result.stderr
