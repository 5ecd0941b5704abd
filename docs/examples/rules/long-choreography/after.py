from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("order.priced.v1", key="order_id")
class OrderPriced(Payload):
    order_id: str


@orders.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@orders.event("order.packed.v1", key="order_id")
class OrderPacked(Payload):
    order_id: str


@orders.on(OrderPlaced)
async def step_1(event: Event[OrderPlaced], tx: Tx) -> OrderPriced:
    return OrderPriced(order_id=event.data.order_id)


@orders.on(OrderPriced)
async def step_2(event: Event[OrderPriced], tx: Tx) -> OrderPaid:
    return OrderPaid(order_id=event.data.order_id)


@orders.on(OrderPaid)
async def step_3(event: Event[OrderPaid], tx: Tx) -> OrderPacked:
    return OrderPacked(order_id=event.data.order_id)
