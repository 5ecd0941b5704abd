"""Grants: ask for one, approve what somebody else asked for, end one. Whoever signed in is who asks and approves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.acting.act import Act, AnyAct, Call, Look, Name, Outcome
from posthouse.console.asking import Ask, Refusal
from posthouse.events import timestamp
from posthouse.store import Grant, GrantVerb, Scope
from posthouse.store.grants import LONGEST_GRANT
from posthouse.trust.rights import Asked
from posthouse.trust.rights.identity import folded

FACTS = (
    "id", "service", "verb", "why", "asked_by", "minutes", "most", "rate", "used", "approved_by", "revoked_by",
)  # fmt: skip


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a grant is to be for; what is not said is any."""

    verb: GrantVerb = "replay"
    consumer: Name | None = None
    topic: Name | None = None
    tenant: Name | None = None
    type: Name | None = None
    key: str | None = None
    minutes: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_GRANT)] = 30
    most: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 10.0

    @property
    def scope(self) -> Scope:
        return Scope(consumer=self.consumer, topic=self.topic, tenant=self.tenant, type=self.type, key=self.key)


class OneGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A grant by its id."""

    grant: Name


async def _look_request(call: Call[Request]) -> Look:
    asked = call.parameters
    if call.who.tenants is not None and (asked.tenant is None or not call.who.sees(asked.tenant)):
        raise Refusal(403, "You see only some tenants: ask for one of these.", "Say `tenant`.")
    return Look(
        sentence=f"Somebody else is asked to let you {asked.verb} {asked.scope.words} of {call.service.name}: {asked.most:,} events in "
        f"{asked.minutes} minutes, {asked.rate:g} per second.",
        tenant=asked.tenant or "",
    )


async def _request(call: Call[Request], look: Look) -> Outcome:
    asked = call.parameters
    grant = await call.app.grants.request(
        Asked(
            service=call.service.name,
            verb=asked.verb,
            scope=asked.scope,
            minutes=asked.minutes,
            most=asked.most,
            rate=asked.rate,
        ),
        by=call.by,
        why=call.why,
    )
    return Outcome(sentence=f"Grant {grant.id} waits for somebody else to approve it.")


async def _found(call: Call[OneGrant]) -> Grant:
    grant = await call.app.grants.get(call.parameters.grant)
    tenant = grant.scope.tenant
    if call.who.tenants is not None and (tenant is None or not call.who.sees(tenant)):
        raise Refusal(404, f"There is no grant {call.parameters.grant!r}.")
    return grant


async def _look_approve(call: Call[OneGrant]) -> Look:
    grant = await _found(call)
    call.app.grants.refuse_approval(grant, by=call.by)
    return Look(
        sentence=f"{grant.asked_by} may {grant.verb} {grant.scope.words} of {grant.service} for {grant.minutes} minutes from now: "
        f"{grant.most:,} events, {grant.rate:g} per second.",
        lines=[f"They say why: {grant.why}"],
        tenant=grant.scope.tenant or "",
        seen=grant.state,
    )


async def _approve(call: Call[OneGrant], look: Look) -> Outcome:
    grant = await call.app.grants.approve(call.parameters.grant, by=call.by, why=call.why)
    return Outcome(sentence=f"{grant.asked_by} may {grant.verb} from now on.")


async def _look_revoke(call: Call[OneGrant]) -> Look:
    grant = await _found(call)
    return Look(
        sentence=f"The grant of {grant.asked_by} ends now, after {grant.used:,} of {grant.most:,} events.",
        lines=["What is under way stops before its next batch."],
        tenant=grant.scope.tenant or "",
        seen=grant.state,
    )


async def _revoke(call: Call[OneGrant], look: Look) -> Outcome:
    await call.app.grants.revoke(call.parameters.grant, by=call.by, why=call.why)
    return Outcome(sentence="The grant is revoked.")


async def listed(ask: Ask) -> object:
    """The last grants of each service that whoever asks may see, newest first, and which services ask for one."""

    def seen(grant: Grant) -> bool:
        return ask.who.tenants is None or (grant.scope.tenant is not None and ask.who.sees(grant.scope.tenant))

    async def of(app: App) -> tuple[bool, Sequence[Mapping[str, object]]]:
        found = [_facts(grant, app.clock.now(), ask.who) for grant in await app.grants.find() if seen(grant)]
        return app.grants.needed, found

    told = await ask.each(of)
    needed = [service.name for name, (needs, _) in told.items() if needs for service in ask.estate.app(name).services]
    items = [facts for _, found in told.values() for facts in found]
    return {"items": sorted(items, key=lambda one: str(one["id"]), reverse=True), "needed": sorted(needed)}


def _facts(grant: Grant, now: float, who: Who) -> Mapping[str, object]:
    """`mine`: whoever asks the page asked for it, and so does not approve it."""
    return {
        **{name: getattr(grant, name) for name in FACTS},
        "state": grant.state,
        "covers": grant.scope.words,
        "mine": folded(who.name) == folded(grant.asked_by),
        "asked_at": timestamp(grant.asked_at),
        "approved_at": None if grant.approved_at is None else timestamp(grant.approved_at),
        "revoked_at": None if grant.revoked_at is None else timestamp(grant.revoked_at),
        "ends_at": None if grant.left is None else timestamp(now + grant.left),
    }


ACTS: tuple[AnyAct, ...] = (
    Act(name="grant.request", title="Ask for a grant", role="reader", parameters=Request, look=_look_request, do=_request),
    Act(name="grant.approve", title="Approve a grant", role="admin", parameters=OneGrant, look=_look_approve, do=_approve),
    Act(name="grant.revoke", title="Revoke a grant", role="operator", parameters=OneGrant, look=_look_revoke, do=_revoke),
)  # fmt: skip
