"""What a store promises about the operators' log."""

from __future__ import annotations

import pytest

from posthouse.errors import DoneAlready
from posthouse.store import Store
from posthouse.store.actions import Action, ActionFilter
from posthouse.testing.store_contract.fixtures import StoreFixtures


class ActionContract(StoreFixtures):
    """What `ActionTable` promises."""

    async def test_an_action_is_read_as_it_was_written(self, store: Store, other: Store) -> None:
        edit = Action(
            verb="held edit",
            by="ada@desk",
            why="the sum was negative",
            service="orders",
            consumer="billing",
            topic="shop.orders.order",
            tenant="t1",
            key="o-1",
            event_id="e-1",
            target="held event 7",
            changed={"total": (-1, 42), "note": ("é", None)},
            count=2,
        )
        async with store.begin() as tx:
            await store.actions.add(tx, edit)
        (found,) = await other.actions.find(ActionFilter())
        assert found.at > 0
        assert (found.verb, found.by, found.why, found.service, found.consumer) == (
            edit.verb, edit.by, edit.why, edit.service, edit.consumer,
        )  # fmt: skip
        assert (found.topic, found.tenant, found.key, found.event_id, found.target) == (
            edit.topic, edit.tenant, edit.key, edit.event_id, edit.target,
        )  # fmt: skip
        assert (found.changed, found.count, found.outcome, found.id) == (edit.changed, 2, "done", edit.id)

    async def test_an_action_is_rolled_back_with_its_act(self, store: Store) -> None:
        async def refused() -> None:
            async with store.begin() as tx:
                await store.actions.add(tx, Action(verb="held skip", by="ada"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await refused()
        assert await store.actions.find(ActionFilter()) == []

    async def test_what_was_begun_is_ended(self, store: Store) -> None:
        begun = Action(verb="seek", by="ada", outcome="begun")
        async with store.begin() as tx:
            await store.actions.add(tx, begun)
            await store.actions.add(tx, Action(verb="seek", by="eve", outcome="begun"))
        ended = Action(verb="seek", id=begun.id, outcome="done", changed={"unread": (0, 9)}, count=3)
        async with store.begin() as tx:
            await store.actions.end(tx, ended)
        found = {action.by: action for action in await store.actions.find(ActionFilter())}
        assert (found["ada"].outcome, found["ada"].changed, found["ada"].count) == ("done", {"unread": (0, 9)}, 3)
        assert found["eve"].outcome == "begun"

    async def test_actions_are_found_newest_first_and_by_what_is_asked(self, store: Store) -> None:
        for number, (verb, by) in enumerate([("held retry", "ada"), ("held edit", "eve"), ("heldish", "eve")]):
            async with store.begin() as tx:
                await store.actions.add(tx, Action(verb=verb, by=by, event_id=f"e-{number}"))
            await self.later(1.0)

        async def verbs(wanted: ActionFilter) -> list[str]:
            return [action.verb for action in await store.actions.find(wanted)]

        assert await verbs(ActionFilter()) == ["heldish", "held edit", "held retry"]
        assert await verbs(ActionFilter(verb="held")) == ["held edit", "held retry"]
        assert await verbs(ActionFilter(verb="held edit")) == ["held edit"]
        assert await verbs(ActionFilter(verb="retry")) == ["held retry"]
        assert await verbs(ActionFilter(by="eve")) == ["heldish", "held edit"]
        assert await verbs(ActionFilter(event_id="e-0")) == ["held retry"]
        (last,) = await store.actions.find(ActionFilter(), limit=1)
        assert await verbs(ActionFilter(since=last.at)) == ["heldish"]

    async def test_actions_are_paged_though_many_happened_at_once(self, store: Store) -> None:
        async with store.begin() as tx:
            for number in range(5):
                await store.actions.add(tx, Action(verb="held skip", by=f"o-{number}"))
        every = [action.id for action in await store.actions.find(ActionFilter())]
        seen: list[str] = []
        before: tuple[float, str] | None = None
        while page := await store.actions.find(ActionFilter(verb="held", before=before), limit=2):
            seen += [action.id for action in page]
            before = page[-1].at, page[-1].id
        assert seen == every
        assert len(every) == 5

    async def test_old_actions_are_forgotten_a_few_at_a_time(self, store: Store) -> None:
        for number in range(3):
            async with store.begin() as tx:
                await store.actions.add(tx, Action(verb="held skip", by=f"o-{number}"))
        await self.later(5.0)
        async with store.begin() as tx:
            await store.actions.add(tx, Action(verb="held skip", by="late"))
        assert [await store.actions.purge(4.0, 2) for _ in range(3)] == [2, 1, 0]
        assert [action.by for action in await store.actions.find(ActionFilter())] == ["late"]

    async def test_the_same_act_is_noted_once_and_its_second_transaction_does_nothing(
        self, store: Store, other: Store
    ) -> None:
        act = Action(verb="held skip", by="ada", tenant="t1", target="held event 7")
        async with store.begin() as tx:
            await store.actions.add(tx, act)

        async def again() -> None:
            async with other.begin() as tx:
                await other.actions.add(tx, Action(verb="held retry", by="ada", tenant="t1"))
                await other.actions.add(tx, act)

        with pytest.raises(DoneAlready, match="held event 7 was done already"):
            await again()
        assert [action.verb for action in await store.actions.find(ActionFilter())] == ["held skip"]

    async def test_an_action_is_found_by_its_id_and_tenant(self, store: Store) -> None:
        act = Action(verb="held skip", by="ada", tenant="t1")
        async with store.begin() as tx:
            await store.actions.add(tx, act)
        found = await store.actions.get("t1", act.id)
        assert found is not None
        assert (found.id, found.verb, found.by) == (act.id, "held skip", "ada")
        assert await store.actions.get("t2", act.id) is None
        assert await store.actions.get("t1", "none") is None

    async def test_the_same_act_is_noted_once_in_transactions_of_its_tenant_too(self, store: Store) -> None:
        act = Action(verb="saga cancel", by="ada", tenant="t1", target="saga booking b1")

        async def noted() -> None:
            async with store.begin(tenant="t1") as tx:
                await store.actions.add(tx, act)

        await noted()
        with pytest.raises(DoneAlready):
            await noted()
        assert [action.id for action in await store.actions.find(ActionFilter())] == [act.id]
