"""A saga in two releases of its service, one after the other on the same store: what the second one finds, and what it keeps."""

import asyncio

from posthouse import App, Saga, Service, Turn, app_of, deadline, field, starts
from posthouse.errors import ConfigurationError
from posthouse.store.sagas import SagaFilter

STORE, BROKER = "sqlite:///shop.db", "embedded:///shop-log.db"


def release(order: type[Saga]) -> Service:
    """The service with this class."""
    shop = Service("shop")
    App(shop, store=STORE, broker=BROKER)
    shop.saga("order", correlate="order_id")(order)
    return shop


class First(Saga):
    """As it was."""

    order_id: str
    points: int = 0

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.forgotten)

    @deadline(86_400.0)
    def forgotten(self, turn: Turn) -> None:
        turn.compensate("forgotten")


class Second(Saga):
    """What was points is score now, and there is a currency."""

    order_id: str
    score: int = field(was="points", default=0)
    currency: str = "EUR"

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.forgotten)

    @deadline(86_400.0)
    def forgotten(self, turn: Turn) -> None:
        turn.compensate("forgotten")


class Careless(Saga):
    """The deadline has another name, and no saga was asked."""

    order_id: str
    score: int = field(was="points", default=0)

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.too_old)

    @deadline(86_400.0)
    def too_old(self, turn: Turn) -> None:
        turn.compensate("too_old")


async def main() -> None:
    first = release(First)
    async with first.running(), first.transaction("t1") as tx:
        await first.start_saga(tx, First(order_id="o1", points=7))

    second = release(Second)
    async with second.running():
        async with second.transaction("t1") as tx:
            await second.start_saga(tx, Second(order_id="o2", score=3))
        async for row in app_of(second).sagas.find(SagaFilter()):
            print(row.id, row.state.decode())

    careless = release(Careless)
    try:
        async with careless.running():
            pass
    except ConfigurationError as error:
        print(error.problems[0])


if __name__ == "__main__":
    asyncio.run(main())
