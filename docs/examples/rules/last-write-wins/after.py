from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("account.credited.v1", key="account_id", retention="cold")
class AccountCredited(Payload):
    account_id: str
    amount_cents: int
