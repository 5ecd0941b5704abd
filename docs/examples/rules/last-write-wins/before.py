from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("balance.set.v1", retention="cold")
class BalanceSet(Payload):
    balance_cents: int
