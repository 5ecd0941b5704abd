from posthouse import App, Payload, Service, Settings
from posthouse.contracts.retention import RetentionClasses

orders = Service("orders", namespace="shop", owner="team checkout")
App(
    orders,
    broker="redis://localhost:6379/0?retention=604800",
    settings=Settings(retention=RetentionClasses()),
)


@orders.event("order.placed.v1", key="order_id", retention="warm")
class OrderPlaced(Payload):
    order_id: str
