"""What tenant-service can be asked to do. Each answers whether anything changed: what was done before is not done again."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.tenant import Role, RoleGranted, Setting, SettingsChanged, TenantCreated, TenantSuspended
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

Plan = Literal["starter", "growth", "chain"]
NEW_ACCOUNT = """INSERT INTO tenant_account (tenant, name, plan, country, suspended, revision) VALUES (?, ?, ?, ?, '', 0)
    ON CONFLICT DO NOTHING"""
SUSPEND = "UPDATE tenant_account SET suspended = ? WHERE tenant = ? AND suspended = ''"
NEW_ROLE = "INSERT INTO tenant_role (tenant, user_id, role, granted_by) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
CURRENT = "SELECT value FROM tenant_setting WHERE tenant = ? AND setting = ?"
CHANGE = """INSERT INTO tenant_setting (tenant, setting, value) VALUES (?, ?, ?)
    ON CONFLICT (tenant, setting) DO UPDATE SET value = excluded.value"""
NEXT_REVISION = "UPDATE tenant_account SET revision = revision + 1 WHERE tenant = ? RETURNING revision"


async def create_tenant(tx: Tx, *, name: str, plan: Plan, country: str) -> bool:
    """A hotelier joins: the tenant is the transaction's own."""
    if not (await run(tx, NEW_ACCOUNT, tx.tenant, name, plan, country)).rowcount:
        return False
    created = TenantCreated(tenant_id=tx.tenant, name=name, plan=plan, country=country)
    tx.publish(created, idempotency_key=f"tenant:create:{tx.tenant}")
    return True


async def suspend_tenant(tx: Tx, reason: Literal["plan_limit", "billing_failure", "compliance"]) -> bool:
    """Stop selling for a hotelier. The first reason stands."""
    await _lock(tx)
    if not (await run(tx, SUSPEND, reason, tx.tenant)).rowcount:
        return False
    suspended = TenantSuspended(tenant_id=tx.tenant, reason=reason)
    tx.publish(suspended, idempotency_key=f"tenant:suspend:{tx.tenant}")
    return True


async def grant_role(tx: Tx, user_id: str, role: Role, *, granted_by: str) -> bool:
    """Let somebody do what a role may."""
    await _lock(tx)
    if not (await run(tx, NEW_ROLE, tx.tenant, user_id, role, granted_by)).rowcount:
        return False
    granted = RoleGranted(user_id=user_id, role=role, granted_by=granted_by)
    tx.publish(granted, idempotency_key=f"tenant:role:{user_id}:{role}")
    return True


async def change_setting(tx: Tx, setting: Setting, value: str) -> bool:
    """Change one rule of the house."""
    await _lock(tx)
    found = typed(await run(tx, CURRENT, tx.tenant, setting), tuple[str])
    before = found[0][0] if found else ""
    if before == value:
        return False
    await run(tx, CHANGE, tx.tenant, setting, value)
    [(revision,)] = typed(await run(tx, NEXT_REVISION, tx.tenant), tuple[int])
    changed = SettingsChanged(tenant_id=tx.tenant, setting=setting, before=before, after=value, revision=revision)
    tx.publish(changed, idempotency_key=f"tenant:settings:{revision}")
    return True


async def _lock(tx: Tx) -> None:
    """Changes of one tenant come one after the other."""
    if not await run(tx, "SELECT 1 FROM tenant_account WHERE tenant = ? FOR UPDATE", tx.tenant):
        raise Reject(f"there is no tenant {tx.tenant}: create it first")
