from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("quote.get_requested.v1", key="quote_id")
class QuoteGetRequested(Payload):
    quote_id: str
    reply_to: str
