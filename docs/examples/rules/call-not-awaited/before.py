from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


async def place(session: AsyncSession, order_id: str, tenant: str) -> None:
    placed = OrderPlaced(order_id=order_id)
    async with session.begin():
        await session.execute(text("INSERT INTO orders VALUES (:order_id)"), {"order_id": order_id})
        orders.outbox.add(session, placed, tenant=tenant, idempotency_key=f"orders:place:{order_id}")
