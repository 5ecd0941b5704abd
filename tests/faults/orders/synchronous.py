"""The payment of docs/examples/synchronous.py, and a customer who pays or does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from posthouse.testing import Ending, Harness, Orders, assert_every_order, hears


async def play(example: ModuleType, limit: int) -> Orders:
    module: Any = example

    class Customer:
        def __init__(self) -> None:
            self.paid = 0

        @hears(module.OrderPlaced)
        def pays(self, said: object) -> object:
            self.paid += 1
            return module.OrderPaid(order_id="o1")

        @hears(module.OrderPlaced)
        def never_pays(self, said: object) -> None: ...

        @hears(module.OrderRefunded)
        def gets_it_back(self, said: object) -> None:
            self.paid -= 1

    def paid_or_given_up(end: Ending) -> Iterator[str]:
        if (end.status == "completed") != (end.partner(Customer).paid == 1):
            yield f"{end.status}, and paid {end.partner(Customer).paid} times"

    async def place(harness: Harness, tenant: str) -> None:
        async with module.orders.transaction(tenant) as tx:
            tx.publish(module.OrderPlaced(order_id="o1"))
            await module.orders.start_saga(tx, module.Payment(order_id="o1"))

    return await assert_every_order(
        module.orders, module.Payment, start=place, partners=[Customer], invariants=paid_or_given_up, limit=limit
    )
