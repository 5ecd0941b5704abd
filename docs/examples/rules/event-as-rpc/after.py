from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("quote.given.v1", key="quote_id")
class QuoteGiven(Payload):
    quote_id: str
    valid_days: int
