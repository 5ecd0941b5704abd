from confluent_kafka import Producer

from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


async def place(order_id: str, tenant: str, producer: Producer) -> None:
    async with orders.transaction(tenant) as tx:
        await tx.execute("INSERT INTO orders VALUES (:order_id)", {"order_id": order_id})
    producer.produce("orders", order_id)
