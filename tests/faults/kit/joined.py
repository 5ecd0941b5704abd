"""A producer that has its own psycopg connection: events are added to transactions that Posthouse did not begin."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import psycopg

from posthouse.errors import StoreError
from tests.faults.kit.failpoint import Steps
from tests.faults.kit.jobs import (
    SAID,
    Broken,
    Deal,
    Job,
    Result,
    fact_of,
    log,
    made_up,
    note,
    opened,
    opened_notes,
    row_of,
    told_to_stop,
)
from tests.faults.kit.shop import Shop


class ProduceJoined(Job, tag=True, kw_only=True):
    """Make up deals until SIGTERM. Some transactions stay open for a while, some undo a savepoint, some are committed in
    two phases; keys are taken in any order, so that now and then two of them wait for each other and one is refused."""

    name: str = "j"
    seed: int = 0
    pause: float = 0.0

    async def work(self, shop: Shop, steps: Steps) -> Result:
        stop, acks = told_to_stop(), opened_notes(shop.folder)
        dice = random.Random(f"{self.name} {self.seed} joined")
        await self.reach(stop, lambda: opened(shop))
        connection: psycopg.Connection | None = None
        for deal in said_at_once(made_up(self.name, self.seed)):
            note(acks, "broken" if deal.broken else "attempted", deal)
            done = False
            while not done and not stop.is_set():
                try:
                    if connection is None:
                        connection = psycopg.connect(self.conditions.database, connect_timeout=5)
                    await self._carry_out(shop, connection, deal, dice)
                    done = True
                except (StoreError, psycopg.Error) as error:
                    log.warning("%s tries again: %s", deal.intents[0].n, error)
                    if connection is not None:
                        connection.close()  # whatever state it was in
                    connection = None
                    await asyncio.sleep(0.05)
            if done and not deal.broken:
                note(acks, "acknowledged", deal)
            if stop.is_set():
                break
            await asyncio.sleep(self.pause)
        if connection is not None:
            connection.close()
        await shop.orders.aclose()
        return Result()

    async def _carry_out(self, shop: Shop, connection: psycopg.Connection, deal: Deal, dice: random.Random) -> None:
        two_phases = dice.random() < 0.1
        if two_phases:
            connection.tpc_begin(connection.xid(1, f"{self.name}-{deal.intents[0].n}", "posthouse"))
        if dice.random() < 0.2:
            self._change_its_mind(shop, connection, deal)
        for intent in deal.intents:
            shop.orders.outbox.add_now(connection, fact_of(intent), tenant=deal.tenant, idempotency_key=intent.n)
            connection.execute(SAID.replace("?", "%s"), row_of(deal, intent))
        if dice.random() < 0.05:
            await asyncio.sleep(dice.uniform(0.3, 1.5))  # a transaction that takes its time
        if two_phases and deal.broken:
            connection.tpc_rollback()
        elif two_phases:
            connection.tpc_prepare()
            connection.tpc_commit()
        elif deal.broken:
            connection.rollback()
        else:
            connection.commit()

    def _change_its_mind(self, shop: Shop, connection: psycopg.Connection, deal: Deal) -> None:
        """Say everything inside a savepoint, and take it back."""
        try:
            with connection.transaction():
                for intent in deal.intents:
                    shop.orders.outbox.add_now(connection, fact_of(intent), tenant=deal.tenant)
                raise Broken
        except Broken:
            pass


def said_at_once(deals: Iterator[Deal]) -> Iterator[Deal]:
    """Deals without timers, which belong to the service's own transactions."""
    for deal in deals:
        intents = [intent for intent in deal.intents if not intent.after]
        if intents:
            yield Deal(tenant=deal.tenant, intents=intents, broken=deal.broken)
