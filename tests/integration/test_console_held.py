"""The pages held, event and key, over a store of each kind with events that are held in every way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from posthouse import Event, Policy, Tx
from posthouse.console import turns
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.held_states import MEANINGS
from posthouse.console.pages import events, held, keys
from posthouse.store.actions import ActionFilter
from posthouse.tracing import trace
from tests.kit.console_shop import BLIND, PLACED, SCOPED, SCRIPT, SHIPPED, TOPIC, Desk, OrderPlaced, a_desk, late, shop
from tests.kit.waiting import eventually


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    store = (
        f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    async with a_desk(store, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def light(tmp_path: Path) -> AsyncIterator[Desk]:
    """Where it does not matter which store it is."""
    async with a_desk(f"sqlite:///{tmp_path / 'shop.db'}", tmp_path) as made:
        yield made


async def told(page: Page, ask: Ask) -> Any:
    """What a browser reads."""
    answer = msgspec.json.decode(msgspec.json.encode(await page(ask)))
    assert ask.problems == []
    return answer


async def lines(desk: Desk, **query: str) -> list[Any]:
    found: list[Any] = (await told(held.held, desk.ask(asked=query)))["items"]
    return found


async def dead(desk: Desk, key: str = "bad") -> dict[str, str]:
    (line,) = await lines(desk, key=key, state="dead")
    return {"service": line["service"], "id": line["id"]}


async def test_failures_are_grouped_by_what_went_wrong_and_where(desk: Desk) -> None:
    found = await told(held.groups, desk.ask())
    (failed,) = [group for group in found["groups"] if group["state"] == "dead"]
    assert failed["count"] == {"number": 3, "more": False}
    assert failed["fingerprint"].startswith("ValueError in ")
    assert "invoice" in failed["fingerprint"]
    assert SCRIPT in failed["error"]
    assert {group["state"] for group in found["groups"]} == {"dead", "blocked", "gap", "quarantined"}
    assert set(found["states"]) == set(MEANINGS)
    assert "billing" in found["choices"]["consumers"]


async def test_a_list_is_narrowed_by_each_filter(desk: Desk) -> None:
    assert {line["state"] for line in await lines(desk, key="bad")} == {"dead", "blocked"}
    assert {line["tenant"] for line in await lines(desk, tenant="t2")} == {"t2"}
    assert {line["key"] for line in await lines(desk, key=SCRIPT)} == {SCRIPT}
    assert await lines(desk, topic="shop.orders.other") == []
    (fingerprint,) = {line["fingerprint"] for line in await lines(desk, state="dead")}
    assert len(await lines(desk, fingerprint=fingerprint)) == 3


async def test_a_list_is_paged_without_losing_or_repeating_one(desk: Desk) -> None:
    whole = [line["id"] for line in await lines(desk)]
    assert len(whole) == 8
    found: list[str] = []
    after = ""
    while True:
        page = await told(held.held, desk.ask(limit="3", after=after))
        found += [line["id"] for line in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert found == whole


async def test_what_is_pressed_is_asked_of_the_service_whose_consumer_holds_it(light: Desk) -> None:
    owners = {line["consumer"]: line["service"] for line in await lines(light)}
    assert owners == {"billing": "billing", "orders.shipping": "orders"}
    for group in (await told(held.groups, light.ask()))["groups"]:
        assert light.estate.service(group["service"]).name == owners[group["consumer"]]
    assert (await told(held.one, light.ask(path=await dead(light))))["service"] == "billing"


async def test_a_dead_event_says_how_many_wait_behind_it(light: Desk) -> None:
    (line,) = await lines(light, key="bad", state="dead")
    assert line["behind"] == {"number": 1, "more": False}


async def test_a_list_holds_no_bodies_headers_or_stacks(light: Desk) -> None:
    for line in await lines(light):
        assert not {"body", "headers", "stack", "payload"} & set(line)


async def test_what_cannot_be_asked_is_refused_with_a_sentence(light: Desk) -> None:
    asked = {
        "state": ("deed", "Did you mean 'dead'"),
        "limit": ("0", "from 1 to 200"),
        "after": ("%%%", "no place in this list"),
    }
    for name, (value, says) in asked.items():
        with pytest.raises(Refusal, match=says) as refused:
            await held.held(light.ask(asked={name: value}))
        assert refused.value.status == 400


async def test_one_event_is_shown_with_its_sentence_its_line_and_its_stack(desk: Desk) -> None:
    one = await told(held.one, desk.ask(path=await dead(desk)))
    assert one["state_means"]["means"] == "its attempts are spent, or no attempt can help"
    assert one["state_means"]["acts"][0] == "held.retry"
    assert [line["state"] for line in one["line"]["items"]] == ["dead", "blocked"]
    assert (one["line"]["first"], one["line"]["behind"]["number"]) == (one["id"], 1)
    assert "Traceback" in one["stack"]
    assert msgspec.json.decode(one["envelope"])["type"] == PLACED
    assert one["neighbours"] != {"older": None, "newer": None}


async def test_a_payload_is_masked_until_it_is_unmasked_and_both_looks_are_kept(desk: Desk) -> None:
    place = await dead(desk)
    shown = await told(held.payload, desk.ask(path=place))
    assert '"email":"…"' in shown["payload"]["text"]
    assert msgspec.json.decode(shown["payload"]["text"])["note"] == SCRIPT
    whole = await told(held.payload, desk.ask(path=place, unmask="1", why="ticket 7"))
    assert "ada@example.org" in whole["payload"]["text"]
    one = await told(held.one, desk.ask(path=place))
    assert [(action["verb"], action["by"]) for action in one["history"]] == [
        ("console unmask", "ada (console)"),
        ("console view", "ada (console)"),
    ]


async def test_who_may_not_see_payloads_sees_no_part_of_one(light: Desk) -> None:
    place = await dead(light)
    await light.app.held.edit(
        int(place["id"]), b'{"order_id":"bad","total_cents":-5,"note":"my secret"}', lambda *_: None, by="x", why="y"
    )
    said = b"".join(
        [
            msgspec.json.encode(await held.one(light.ask(BLIND, place))),
            msgspec.json.encode(await held.payload(light.ask(BLIND, place))),
            msgspec.json.encode(await held.held(light.ask(BLIND))),
            msgspec.json.encode(await held.groups(light.ask(BLIND))),
        ]
    )
    for secret in (b"a negative total", b"my secret", b"Traceback", b"ada@example"):
        assert secret not in said
    assert await light.app.actions.find(ActionFilter(verb="console")) == []


async def test_an_edit_is_in_the_history_with_what_it_changed(light: Desk) -> None:
    place = await dead(light)
    await light.app.held.edit(
        int(place["id"]),
        b'{"order_id":"bad","total_cents":5,"email":"n@e.w"}',
        lambda *_: None,
        by="ada",
        why="ticket 7",
    )
    edit = (await told(held.one, light.ask(path=place)))["history"][0]
    assert {"name": "total_cents", "before": "-1", "after": "5"} in edit["changed"]
    assert {"name": "email", "before": "…", "after": "…"} in edit["changed"]
    assert edit["why"] == "ticket 7"


async def test_somebody_of_one_tenant_sees_nothing_of_another(desk: Desk) -> None:
    theirs = await dead(desk, "theirs")
    with pytest.raises(Refusal) as refused:
        await held.one(desk.ask(SCOPED, theirs))
    assert refused.value.status == 404
    with pytest.raises(Refusal):
        await held.payload(desk.ask(SCOPED, theirs))
    with pytest.raises(Refusal) as forbidden:
        await keys.key(desk.ask(SCOPED, topic=TOPIC, tenant="t2", key="theirs"))
    assert forbidden.value.status == 403
    assert {line["tenant"] for line in (await told(held.held, desk.ask(SCOPED)))["items"]} == {"t1"}
    assert (await told(held.held, desk.ask(SCOPED, tenant="t2")))["items"] == []
    found = await told(events.search, desk.ask(SCOPED, q="theirs"))
    assert (found["events"], found["held"], found["keys"]) == ([], [], [])


async def test_bytes_that_are_no_event_are_shown_as_text_when_somebody_asks_for_them(light: Desk) -> None:
    line = (await lines(light, state="quarantined"))[0]
    place = {"service": line["service"], "id": line["id"]}
    masked = await told(held.payload, light.ask(path=place))
    assert masked["payload"]["text"] is None
    whole = await told(held.payload, light.ask(path=place, unmask="1", why="ticket 7"))
    assert (whole["payload"]["text"], whole["payload"]["form"]) == (SCRIPT, "text")
    assert whole["unreadable"]


async def test_a_number_that_nothing_has_is_said_to_be_gone(light: Desk) -> None:
    for number in ("99", "0", "x", "-1", "9" * 40, "9" * 19, "²"):
        with pytest.raises(Refusal) as refused:
            await held.one(light.ask(path={"service": "billing", "id": number}))
        assert refused.value.status == 404


async def _mended(desk: Desk, place: Mapping[str, str]) -> None:
    await desk.app.held.edit(
        int(place["id"]), b'{"order_id":"bad","total_cents":5}', lambda *_: None, by="ada", why="ticket 7"
    )
    async with desk.app.running():
        await eventually(lambda: lines(desk, key="bad"), "its line is applied", right=lambda found: not found)


async def test_one_that_was_applied_says_so_with_who_saw_to_it(desk: Desk) -> None:
    place = await dead(desk)
    was = await told(held.one, desk.ask(path=place))
    await _mended(desk, place)
    seen = {"event": was["event_id"], **{name: was[name] for name in ("consumer", "topic", "tenant", "key")}}
    for asked in ({}, seen):  # by the operators' log, and by who saw it
        left = await told(held.one, desk.ask(path=place, asked=asked))
        assert (left["gone"]["outcome"], left["gone"]["event_id"]) == ("applied", was["event_id"])
        assert (left["history"][0]["by"], left["history"][0]["why"]) == ("ada", "ticket 7")
    theirs = Who(name="dan", roles=frozenset(("operator",)), tenants=frozenset(("t2",)), payloads=True)
    for asked in ({}, seen):
        with pytest.raises(Refusal) as refused:
            await held.one(desk.ask(theirs, path=place, asked=asked))
        assert refused.value.status == 404


async def test_nothing_is_said_to_be_applied_that_nobody_knows(light: Desk) -> None:
    made_up = {"event": "e", "consumer": "billing", "topic": "shop.orders.order", "tenant": "t1", "key": "nobody"}
    left = await told(held.one, light.ask(path={"service": "billing", "id": "99"}, asked=made_up))
    assert left["gone"]["outcome"] == "unknown"


async def test_one_that_runs_out_of_order_says_under_which_number(light: Desk) -> None:
    place = await dead(light)
    await light.app.held.skip(int(place["id"]), by="ada")
    await light.app.held.retry(int(place["id"]), force=True, by="ada")
    left = await told(held.one, light.ask(path=place))
    assert left["gone"]["outcome"] == "held"
    now = await told(held.one, light.ask(path={**place, "id": left["gone"]["now"]}))
    assert now["state"] == "retrying"


async def test_a_search_finds_events_by_key_by_id_and_by_correlation(desk: Desk) -> None:
    by_key = await told(events.search, desk.ask(q="bad"))
    assert by_key["keys"] == [{"topic": TOPIC, "tenant": "t1", "key": "bad"}]
    assert {line["state"] for line in by_key["held"]} == {"dead", "blocked"}
    (first, *_) = [event for event in by_key["events"] if event["sequence"] == "1"]
    by_id = await told(events.search, desk.ask(q=first["id"]))
    assert [event["id"] for event in by_id["events"]] == [first["id"]]
    assert {line["event_id"] for line in by_id["held"]} == {first["id"]}
    if first["correlation"]:
        by_story = await told(events.search, desk.ask(q=first["correlation"]))
        assert first["id"] in {line["event_id"] for line in by_story["held"]}
    assert (await told(events.search, desk.ask(q="no such thing")))["held"] == []
    with pytest.raises(Refusal):
        await events.search(desk.ask(q="x" * 600))


async def test_a_trace_shows_what_an_event_led_to_and_what_each_consumer_did(desk: Desk) -> None:
    (placed,) = [
        event for event in (await told(events.search, desk.ask(q="good")))["events"] if event["type"] == PLACED
    ]
    found = await told(events.one, desk.ask(path={"id": placed["id"]}))
    assert [(event["type"], event["depth"]) for event in found["events"]] == [(PLACED, 0), (SHIPPED, 1)]
    assert {heard["consumer"]: heard["state"] for heard in found["events"][0]["consumers"]} == {
        "billing": "applied",
        "orders.shipping": "applied",
    }
    shown = await told(events.payload, desk.ask(path={"id": placed["id"]}))
    assert '"email":"…"' in shown["payload"]["text"]
    kept = await desk.app.actions.find(ActionFilter(verb="console view"))
    assert [action.event_id for action in kept] == [placed["id"]]


async def test_a_trace_says_where_it_is_stuck(light: Desk) -> None:
    (line,) = await lines(light, key="bad", state="dead")
    found = await told(events.one, light.ask(path={"id": line["event_id"]}))
    stuck = [heard for event in found["events"] for heard in event["consumers"] if heard["held"]]
    assert {heard["state"] for heard in stuck} >= {"dead"}
    blind = msgspec.json.encode(await events.one(light.ask(BLIND, {"id": line["event_id"]})))
    assert b"a negative total" not in blind


async def test_a_trace_says_what_it_had_no_time_to_look_at(light: Desk) -> None:
    (line,) = await lines(light, key="bad", state="dead")
    hasty = await trace(light.app.services, line["event_id"], within=0.0)
    left = "was looked through for 0 s and then left: there may be more in it"
    assert [note for note in hasty.notes if note.startswith("the log of")] == [f"the log of embedded {left}"]
    assert (await trace(light.app.services, line["event_id"], within=30.0)).notes == []


async def test_a_trace_leaves_out_what_somebody_may_not_see(light: Desk) -> None:
    (line,) = await lines(light, key="theirs")
    found = await told(events.one, light.ask(SCOPED, {"id": line["event_id"]}))
    assert found["events"] == []
    assert found["notes"][-1] == "events of tenants that you may not see are left out, if there are any"


async def test_a_trace_mixes_no_tenants_whose_events_have_the_same_id(light: Desk) -> None:
    """An id is unique in its tenant, and producers choose it: one of another tenant, there first, neither hides an event nor is shown."""
    theirs, mine = late(1, "t2", "same"), late(1, "t1", "same")
    mine = msgspec.structs.replace(mine, id=theirs.id, body=mine.body.replace(mine.id.encode(), theirs.id.encode()))
    await light.app.broker.publish([theirs, mine])
    found = await told(events.one, light.ask(SCOPED, {"id": theirs.id}))
    assert [event["tenant"] for event in found["events"]] == ["t1"]
    assert b"t2" not in msgspec.json.encode(found)
    seen = await told(events.one, light.ask(path={"id": theirs.id}))
    assert [event["tenant"] for event in seen["events"]] == ["t2"]
    assert f"t1 has an event with the id {theirs.id} too, which is left out: this is that of t2" in seen["notes"]


async def test_forty_traces_of_one_reader_leave_room_for_others(light: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.0)
    (line,) = await lines(light, key="bad", state="dead")
    asked = [events.one(light.ask(SCOPED, {"id": line["event_id"]})) for _ in range(40)]
    answers = await asyncio.gather(*asked, events.one(light.ask(path={"id": line["event_id"]})), return_exceptions=True)
    refused = [answer for answer in answers[:40] if isinstance(answer, Refusal)]
    assert len(refused) >= 37
    assert {answer.status for answer in refused} == {429}
    assert not isinstance(answers[40], Exception), "somebody else has room"


async def test_the_history_of_a_key_has_its_numbers_in_order_and_where_each_consumer_stands(desk: Desk) -> None:
    found = await told(keys.key, desk.ask(topic=TOPIC, tenant="t1", key="bad"))
    assert [number["sequence"] for number in found["numbers"]] == ["1", "2"]
    stands = {one["consumer"]: one for one in found["consumers"]}
    assert stands["orders.shipping"]["sequence"] == "2"
    assert (stands["billing"]["first"]["state"], stands["billing"]["first"]["sequence"]) == ("dead", "1")
    first = {one["consumer"]: one["state"] for one in found["numbers"][0]["consumers"]}
    assert first == {"billing": "dead", "orders.shipping": "passed"}


async def test_the_history_of_a_key_says_which_numbers_never_came(desk: Desk) -> None:
    found = await told(keys.key, desk.ask(topic=TOPIC, tenant="t1", key="late"))
    assert {tuple(one["missing"]) for one in found["consumers"] if one["missing"]} == {("1", "2")}
    assert found["unknown"] == [["1", "2"]]
    assert [(one["sequence"], one["places"]) for one in found["numbers"]] == [("3", ["held"])]
    read = await told(keys.key, desk.ask(topic=TOPIC, tenant="t1", key="late", log="1"))
    assert [(one["sequence"], one["places"]) for one in read["numbers"]] == [("3", ["log", "held"])]


async def test_a_key_of_a_tenant_whose_name_holds_a_colon_is_not_anothers(light: Desk) -> None:
    await light.app.broker.publish([late(1, "t1:x", "k")])
    theirs = await told(keys.key, light.ask(topic=TOPIC, tenant="t1:x", key="k", log="1"))
    assert [one["sequence"] for one in theirs["numbers"]] == ["1"]
    ours = await told(keys.key, light.ask(SCOPED, topic=TOPIC, tenant="t1", key="x:k", log="1"))
    assert ours["numbers"] == []


async def test_the_history_of_a_key_calls_nothing_waiting_for_who_keeps_no_order(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path / 'shop.db'}", tmp_path)

    @app.services[1].on(OrderPlaced, consumer="mail", policy=Policy(order="none"))
    async def mail(event: Event[OrderPlaced], tx: Tx) -> None: ...

    async with app.services[0].transaction("t1") as tx:
        tx.publish(OrderPlaced(order_id="o1", total_cents=1))
    desk = Desk(app)
    found = await told(keys.key, desk.ask(topic=TOPIC, tenant="t1", key="o1"))
    await desk.estate.aclose()
    await app.aclose()
    assert {one["consumer"]: one["ordered"] for one in found["consumers"]}["billing.mail"] is False
    stands = {one["consumer"]: one["state"] for one in found["numbers"][0]["consumers"]}
    assert (stands["billing.mail"], stands["billing"]) == ("unordered", "waiting")


async def test_a_key_is_named_by_three_words(light: Desk) -> None:
    with pytest.raises(Refusal, match="there is no tenant"):
        await keys.key(light.ask(topic=TOPIC, key="bad"))
