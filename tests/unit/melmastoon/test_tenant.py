"""tenant-service: hoteliers, roles, settings."""

from __future__ import annotations

import pytest

from melmastoon.facts.tenant import RoleGranted, SettingsChanged, TenantCreated, TenantSuspended
from melmastoon.tenant import tenant
from melmastoon.tenant.commands import change_setting, create_tenant, grant_role, suspend_tenant
from posthouse import Reject
from posthouse.testing import Harness


async def test_a_hotelier_joins_once() -> None:
    async with Harness(tenant) as house:
        for joined in (True, False):
            async with tenant.transaction("t1") as tx:
                assert await create_tenant(tx, name="Bagh-e Babur", plan="growth", country="AF") is joined
        await house.settled()
        [created] = await house.published(TenantCreated)
        assert (created.tenant, created.data.tenant_id, created.data.plan) == ("t1", "t1", "growth")


async def test_a_tenant_is_suspended_for_the_first_reason() -> None:
    async with Harness(tenant) as house:
        async with tenant.transaction("t1") as tx:
            await create_tenant(tx, name="A", plan="starter", country="AF")
            assert await suspend_tenant(tx, "billing_failure")
            assert not await suspend_tenant(tx, "compliance")
        await house.settled()
        assert [e.data.reason for e in await house.published(TenantSuspended)] == ["billing_failure"]


async def test_a_role_is_granted_once() -> None:
    async with Harness(tenant) as house:
        async with tenant.transaction("t1") as tx:
            await create_tenant(tx, name="A", plan="starter", country="AF")
            assert await grant_role(tx, "u1", "manager", granted_by="u0")
            assert not await grant_role(tx, "u1", "manager", granted_by="u0")
            assert await grant_role(tx, "u1", "finance", granted_by="u0")
        await house.settled()
        assert [e.data.role for e in await house.published(RoleGranted)] == ["manager", "finance"]


async def test_a_setting_changes_in_revisions_and_the_same_value_is_no_change() -> None:
    async with Harness(tenant) as house:
        async with tenant.transaction("t1") as tx:
            await create_tenant(tx, name="A", plan="starter", country="AF")
        for value, changed in (("USD", True), ("USD", False), ("AFN", True), ("USD", True)):
            async with tenant.transaction("t1") as tx:
                assert await change_setting(tx, "currency", value) is changed
        await house.settled()
        changes = [(e.data.before, e.data.after, e.data.revision) for e in await house.published(SettingsChanged)]
        assert changes == [("", "USD", 1), ("USD", "AFN", 2), ("AFN", "USD", 3)]


async def test_nothing_is_done_for_a_tenant_that_is_not_there() -> None:
    async with Harness(tenant), tenant.transaction("t9") as tx:
        for refused in (
            suspend_tenant(tx, "compliance"),
            grant_role(tx, "u1", "owner", granted_by="u0"),
            change_setting(tx, "tax", "10"),
        ):
            with pytest.raises(Reject, match="there is no tenant t9"):
                await refused
