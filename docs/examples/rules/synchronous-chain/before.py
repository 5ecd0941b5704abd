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


@stock.on(InvoiceIssued)
async def reserve(event: Event[InvoiceIssued], tx: Tx) -> ItemReserved:
    return ItemReserved(order_id=event.data.order_id)


@depot.on(ItemReserved)
async def pack(event: Event[ItemReserved], tx: Tx) -> ParcelPacked:
    return ParcelPacked(order_id=event.data.order_id)


@stock.on(ParcelPacked)
async def packed(event: Event[ParcelPacked], tx: Tx) -> None: ...


@billing.on(ItemReserved)
async def reserved(event: Event[ItemReserved], tx: Tx) -> None: ...


@orders.on(InvoiceIssued)
async def invoiced(event: Event[InvoiceIssued], tx: Tx) -> None: ...
