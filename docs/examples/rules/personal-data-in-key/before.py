from typing import Annotated

from posthouse import Payload, Personal, Service

accounts = Service("accounts", namespace="shop", owner="team accounts")


@accounts.event("account.opened.v1", key="email")
class AccountOpened(Payload):
    account_id: str
    email: Annotated[str, Personal("contact")]


async def open_account(account_id: str, email: str, tenant: str) -> None:
    async with accounts.transaction(tenant) as tx:
        opened = AccountOpened(account_id=account_id, email=email)
        tx.publish(opened, idempotency_key=f"accounts:open:{email}")
