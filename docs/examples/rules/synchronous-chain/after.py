from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team orders")
billing = Service("billing", namespace="shop", owner="team billing")
stock = Service("stock", namespace="shop", owner="team stock")
depot = Service("depot", namespace="shop", owner="team depot")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


@stock.event("item.reserved.v1", key="order_id")
class ItemReserved(Payload):
    order_id: str


@depot.event("parcel.packed.v1", key="order_id")
class ParcelPacked(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def issue(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id)


@stock.on(OrderPlaced)
async def reserve(event: Event[OrderPlaced], tx: Tx) -> ItemReserved:
    return ItemReserved(order_id=event.data.order_id)


@depot.on(OrderPlaced)
async def pack(event: Event[OrderPlaced], tx: Tx) -> ParcelPacked:
    return ParcelPacked(order_id=event.data.order_id)


@orders.on(InvoiceIssued, ItemReserved, ParcelPacked)
async def proceed(event: Event[InvoiceIssued | ItemReserved | ParcelPacked], tx: Tx) -> None: ...
