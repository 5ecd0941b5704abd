from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("day.closed.v1", key="day")
class DayClosed(Payload):
    day: str
    orders: int
