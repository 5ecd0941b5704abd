"""Acts on held events: what is seen is what is done, once, by who may, and it is in the log."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from posthouse.app import app_of
from posthouse.clock import new_id
from posthouse.console.access.who import Role, Who
from posthouse.store.actions import ActionFilter
from posthouse.testing import Harness
from tests.kit.console import unguarded
from tests.unit.console.acting.pressing import ADA, Console, a_shop, keys


async def test_a_retry_is_seen_then_done_and_noted() -> None:
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        for total in (1, 2, 3):
            await harness.publish(placed(order_id="o-1", total=total))
        await harness.advance(1)
        [dead, *_] = await harness.held(shop)
        broken["broken"] = False
        console = Console(shop)
        seen = await console.look("held.retry", service="shop", id=str(dead.id))
        assert (
            "runs again, with all its attempts. 2 events wait behind it and follow by themselves." in seen["sentence"]
        )
        assert seen["counts"] == {"wait behind it": 2}
        assert [one.state for one in await harness.held(shop)] == ["dead", "blocked", "blocked"]
        answer = await console.send("held.retry", service="shop", id=str(dead.id), why="ticket 7", **keys(seen))
        assert answer == {
            "sentence": f"Held event {dead.id} runs again as soon as its consumer does.",
            "job": None,
            "again": False,
        }
        await harness.advance(1)
        assert await harness.held(shop) == []
        [noted] = await app_of(shop).actions.find(ActionFilter(verb="held retry"))
        assert (noted.by, noted.why, noted.target, noted.tenant) == (
            "ada (console)", "ticket 7", f"held event {dead.id}", dead.entry.tenant,
        )  # fmt: skip


async def test_a_press_that_is_sent_again_does_nothing_more_and_says_so() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        console = Console(shop)
        body = {"service": "shop", "id": str(dead.id)}
        seen = await console.look("held.retry", **body)
        answers = await asyncio.gather(
            *(console.send("held.retry", **body, why="ticket 7", **keys(seen)) for _ in range(2)),
            return_exceptions=True,
        )
        assert all(isinstance(answer, dict) or getattr(answer, "status", 0) == 409 for answer in answers), answers
        await harness.advance(1)  # it failed again: held in another turn
        late = await console.send("held.retry", **body, why="ticket 7", **keys(seen))
        assert late["again"]
        assert "done already by this very press" in late["sentence"]
        assert len(await app_of(shop).actions.find(ActionFilter(verb="held retry"))) == 1


async def test_what_changed_since_it_was_seen_is_refused() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        console = Console(shop)
        body = {"service": "shop", "id": str(dead.id)}
        seen = await console.look("held.skip", **body)
        await shop.held.quarantine(dead.id, by="eve")
        refusal = await console.refusal("held.skip", **body, why="ticket 7", **keys(seen))
        assert refusal.status == 409
        assert "changed since you looked" in refusal.message
        assert [one.state for one in await harness.held(shop)] == ["quarantined"]
        assert await app_of(shop).actions.find(ActionFilter(verb="held skip")) == []


async def test_an_edit_shows_the_fields_that_change_and_hides_personal_ones() -> None:
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=2**60, email="a@b.example"))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        console = Console(shop)
        data = '{"order_id":"o-1","total":1152921504606846977,"email":"a@b.example"}'
        seen = await console.look("held.edit", service="shop", id=str(dead.id), data=data)
        assert seen["changes"] == [{"field": "total", "before": "1152921504606846976", "after": "1152921504606846977"}]
        seen = await console.look(
            "held.edit", service="shop", id=str(dead.id), set={"email": "c@d.example", "total": 5}
        )
        assert {"field": "email", "before": '"…"', "after": '"…"'} in seen["changes"]
        assert "c@d" not in str(seen)
        right = {"service": "shop", "id": str(dead.id), "set": {"email": "a@b.example"}}
        assert "as it was" in (await console.refusal("held.edit", **right, dry=True)).message
        views = await app_of(shop).actions.find(ActionFilter(verb="console view"))
        assert 1 <= len(views) <= 2  # two where ten minutes end between the three looks
        assert {(one.target, one.event_id) for one in views} == {(f"held event {dead.id}", dead.entry.event_id)}
        broken["broken"] = False
        await console.press("held.edit", service="shop", id=str(dead.id), data=data)
        [again] = await harness.held(shop)
        assert b"1152921504606846977" in again.body
        assert b"a@b.example" in again.body
        await harness.advance(1)
        assert await harness.held(shop) == []


@pytest.mark.parametrize(
    "edited",
    [
        {"data": '{"order_id":"o-1","total":2,"email":"…"}'},
        {"data": '{"order_id":"…","total":1,"email":"…"}'},
        {"data": '{"order_id":"o-1","total":2,"email":"a@b.example","more":[{"deep":"…"}]}'},
        {"set": {"email": "…"}},
    ],
)
async def test_what_was_shown_as_hidden_is_never_guessed_back_into_a_payload(edited: dict[str, object]) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1, email="a@b.example"))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        refusal = await Console(shop).refusal("held.edit", service="shop", id=str(dead.id), dry=True, **edited)
        assert (refusal.status, "stands for what is hidden" in refusal.message) == (400, True)
        assert "Unmask" in refusal.hint


async def test_a_payload_that_says_so_itself_keeps_it() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1, email="…"))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        body = {"service": "shop", "id": str(dead.id), "data": '{"order_id":"o-1","total":2,"email":"…"}'}
        assert [change["field"] for change in (await Console(shop).look("held.edit", **body))["changes"]] == ["total"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"id": "1", "forse": True}, 400, "Did you mean 'force'?"),
        ({"id": 1}, 400, "Expected `str`, got `int`"),
        ({"id": "-1"}, 400, "matching regex"),
        ({}, 400, "missing required field `id`"),
        ({"id": "99"}, 404, "No held event of shop has the number 99"),
    ],
)
async def test_parameters_are_checked_with_a_sentence(body: dict[str, object], status: int, said: str) -> None:
    shop, *_ = a_shop()
    async with Harness(shop):
        refusal = await Console(shop).refusal("held.retry", service="shop", dry=True, **body)
        assert refusal.status == status
        assert said in refusal.message


@pytest.mark.parametrize("where", ["why", "seen", "press", "service", "tenant", "key", "fingerprint"])
async def test_a_nul_which_no_store_keeps_is_refused(where: str) -> None:
    shop, *_ = a_shop()
    async with Harness(shop):
        said = '["a\\u0000b", null, ""]' if where == "seen" else "a\0b"
        body = {"service": "shop", "why": "x", "seen": '["", null, ""]', "press": new_id(), where: said}
        refusal = await Console(shop).refusal("held.skip.all", **body)
        assert (refusal.status, refusal.message) == (400, f"{where!r} has a NUL (U+0000) in it.")


async def test_names_are_suggested() -> None:
    shop, *_ = a_shop()
    async with Harness(shop):
        assert "Did you mean 'held.retry'?" in (await Console(shop).refusal("held.rety", service="shop")).message
        refusal = await Console(shop).refusal("held.retry", service="shp", id="1", dry=True)
        assert (refusal.status, "Did you mean 'shop'?" in refusal.message) == (404, True)


@pytest.mark.parametrize("without", ["why", "seen", "press"])
async def test_nothing_is_done_without_a_reason_or_a_look(without: str) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        console = Console(shop)
        seen = await console.look("held.skip", service="shop", id=str(dead.id))
        body = {"service": "shop", "id": str(dead.id), "why": "because", **keys(seen), without: "  "}
        assert (await console.refusal("held.skip", **body)).status == 400
        assert [one.state for one in await harness.held(shop)] == ["dead"]


async def test_a_release_is_of_the_event_that_was_seen_as_the_first_of_its_key() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        for total in (1, 2, 3):
            await harness.publish(placed(order_id="o-1", total=total))
        await harness.advance(1)
        first, second, third = await harness.held(shop)
        console, body = Console(shop), {"service": "shop", "id": str(third.id)}
        seen = await console.look("held.release", **body)
        assert f"held event {first.id}, the first of it, which is dead, runs again" in seen["sentence"]
        await shop.held.skip(first.id, by="eve")
        await harness.advance(1)
        assert [(one.id, one.state) for one in await harness.held(shop) if one.state != "skipped"] == [
            (second.id, "dead"), (third.id, "blocked"),
        ]  # fmt: skip
        refusal = await console.refusal("held.release", **body, why="ticket 7", **keys(seen))
        assert (refusal.status, await app_of(shop).actions.find(ActionFilter(verb="held release"))) == (409, [])
        assert (await console.press("held.release", **body))[
            "sentence"
        ] == f"The key of held event {second.id} is released."


async def test_only_who_may_presses() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        body = {"service": "shop", "id": str(dead.id), "dry": True}
        reader = Who(name="rae", roles=frozenset[Role](("reader", "replayer")), payloads=True)
        assert (await Console(shop, who=reader).refusal("held.retry", **body)).status == 403
        blind = msgspec.structs.replace(ADA, payloads=False)
        assert (await Console(shop, who=blind).refusal("held.edit", **body, data="{}")).status == 403
        stranger = msgspec.structs.replace(ADA, tenants=frozenset(("another",)))
        for name in ("held.retry", "held.skip", "held.quarantine", "held.release", "held.edit"):
            refusal = await Console(shop, who=stranger).refusal(name, **body)
            assert (refusal.status, refusal.message) == (404, f"No held event of shop has the number {dead.id}.")
        theirs = msgspec.structs.replace(ADA, tenants=frozenset((dead.entry.tenant,)))
        assert (await Console(shop, who=theirs).look("held.retry", service="shop", id=str(dead.id)))["press"]


async def test_acts_are_posted_and_answered_as_every_path() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        [dead] = await harness.held(shop)
        app = unguarded(Console(shop).estate)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            body = {"service": "shop", "id": str(dead.id)}
            seen = (await client.post("/api/acts/held.skip", json={**body, "dry": True})).json()["data"]
            done = await client.post("/api/acts/held.skip", json={**body, "why": "ticket 7", **keys(seen)})
            assert done.json()["data"]["sentence"] == f"Held event {dead.id} is skipped; its key goes on."
            wrong = await client.post("/api/acts/held.skip", content=b"[1]")
            assert (wrong.status_code, wrong.json()["error"]["message"]) == (400, "The request is no JSON object.")
            acts = (await client.get("/api/acts")).json()["data"]
            assert {"held.retry", "held.edit"} <= {act["name"] for act in acts if act["may"]}
