"""iam-service: accounts, sessions, desktops, second factors."""

from __future__ import annotations

import pytest

from melmastoon.facts.iam import (
    DeviceBound,
    DeviceUnbound,
    MfaEnrolled,
    SessionIssued,
    SessionRevoked,
    UserCreated,
)
from melmastoon.iam import iam
from melmastoon.iam.commands import bind_device, create_user, enrol_factor, sign_in, sign_out, unbind_device
from posthouse import Reject
from posthouse.testing import Harness


async def test_an_account_is_opened_once_and_one_address_has_one() -> None:
    async with Harness(iam) as house:
        async with iam.transaction("t1") as tx:
            assert await create_user(tx, "u1", email="Zala@example.org")
        async with iam.transaction("t1") as tx:
            assert not await create_user(tx, "u1", email="zala@example.org")
        async with iam.transaction("t1") as tx:
            with pytest.raises(Reject, match="has an account already"):
                await create_user(tx, "u2", email="ZALA@example.org")
        async with iam.transaction("t2") as tx:
            assert await create_user(tx, "u1", email="zala@example.org")
        await house.settled()
        created = await house.published(UserCreated)
        assert [(e.tenant, e.data.user_id, e.data.email) for e in created] == [
            ("t1", "u1", "zala@example.org"),
            ("t2", "u1", "zala@example.org"),
        ]


async def test_a_session_begins_and_ends_once() -> None:
    async with Harness(iam) as house:
        async with iam.transaction("t1") as tx:
            await create_user(tx, "u1", email="a@example.org")
            assert await sign_in(tx, "s1", user_id="u1")
            assert not await sign_in(tx, "s1", user_id="u1")
        for ended in (True, False):
            async with iam.transaction("t1") as tx:
                assert await sign_out(tx, "s1") is ended
        async with iam.transaction("t2") as tx:
            assert not await sign_out(tx, "s1"), "another tenant's session"
        await house.settled()
        [issued] = await house.published(SessionIssued)
        assert (issued.data.session_id, issued.data.user_id, issued.data.device_id) == ("s1", "u1", "")
        [revoked] = await house.published(SessionRevoked)
        assert (revoked.data.session_id, revoked.data.reason) == ("s1", "signed_out")


async def test_strangers_get_nothing() -> None:
    async with Harness(iam) as house:
        async with iam.transaction("t1") as tx:
            for refused in (
                sign_in(tx, "s1", user_id="u9"),
                bind_device(tx, "d1", user_id="u9", property_id="p1"),
                enrol_factor(tx, "f1", user_id="u9", factor="totp"),
            ):
                with pytest.raises(Reject, match="u9 has no account"):
                    await refused
        assert (await house.settled()).quiet
        assert await house.published(SessionIssued) == []


async def test_a_device_that_is_unbound_takes_its_sessions_along() -> None:
    async with Harness(iam) as house:
        async with iam.transaction("t1") as tx:
            await create_user(tx, "u1", email="a@example.org")
            with pytest.raises(Reject, match="d1 is not a bound device"):
                await sign_in(tx, "s0", user_id="u1", device_id="d1")
            assert await bind_device(tx, "d1", user_id="u1", property_id="p1")
            assert not await bind_device(tx, "d1", user_id="u1", property_id="p1")
            for session in ("s1", "s2"):
                await sign_in(tx, session, user_id="u1", device_id="d1")
            await sign_in(tx, "s3", user_id="u1")
        for done in (True, False):
            async with iam.transaction("t1") as tx:
                assert await unbind_device(tx, "d1", reason="lost") is done
        async with iam.transaction("t1") as tx:
            with pytest.raises(Reject, match="bound"):
                await sign_in(tx, "s4", user_id="u1", device_id="d1")
        await house.settled()
        assert [e.data.device_id for e in await house.published(DeviceBound)] == ["d1"]
        assert [(e.data.device_id, e.data.reason) for e in await house.published(DeviceUnbound)] == [("d1", "lost")]
        revoked = [(e.data.session_id, e.data.reason) for e in await house.published(SessionRevoked)]
        assert sorted(revoked) == [("s1", "device_unbound"), ("s2", "device_unbound")]


async def test_a_second_factor_is_enrolled_once() -> None:
    async with Harness(iam) as house:
        async with iam.transaction("t1") as tx:
            await create_user(tx, "u1", email="a@example.org")
            assert await enrol_factor(tx, "f1", user_id="u1", factor="webauthn")
            assert not await enrol_factor(tx, "f1", user_id="u1", factor="webauthn")
        await house.settled()
        assert [(e.data.factor_id, e.data.factor) for e in await house.published(MfaEnrolled)] == [("f1", "webauthn")]
