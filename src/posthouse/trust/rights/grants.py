"""Grants: a person may replay or edit for a while, because another one said so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from posthouse.clock import new_id
from posthouse.errors import DeskError, GrantNeeded
from posthouse.operators import OperatorsLog
from posthouse.processes.saga.declared import SagaType
from posthouse.store import Action, CoreStore, Grant, GrantVerb, HeldEvent, Scope, Transaction
from posthouse.store.grants import LONGEST_GRANT
from posthouse.store.sagas import SagaRow
from posthouse.trust.rights.identity import Person, folded, person_of
from posthouse.trust.rights.rights import Rights

AT_ONCE = 1.0
"""Seconds of the pace that one draw may take together."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks for."""

    service: str
    verb: GrantVerb = "replay"
    scope: Scope = Scope()
    minutes: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_GRANT)] = 30
    most: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    rate: Annotated[float, msgspec.Meta(gt=0)] = 10.0


class Grants:
    """The verbs, on one store. Each is in the operators' log."""

    def __init__(self, store: CoreStore, services: Sequence[str], rights: Rights | None) -> None:
        self._store = store
        self._services = services
        self._rights = rights or Rights()

    @property
    def needed(self) -> bool:
        """Whether anything here asks for a grant."""
        return self._rights.grants

    async def request(self, asked: Asked, *, by: str = "", why: str) -> Grant:
        """Ask. DeskError for what nobody may have."""
        person = self._known(by)
        if not why.strip():
            raise DeskError("say why: whoever is to approve it will ask")
        if asked.service not in self._services:
            raise DeskError(f"there is no service {asked.service!r} here: it has {', '.join(self._services)}")
        refuse_beyond(asked)
        grant = Grant(
            id=new_id(),
            service=asked.service,
            verb=asked.verb,
            scope=asked.scope,
            why=why.strip(),
            asked_by=person.name,
            asked_as=person.known_as,
            minutes=asked.minutes,
            most=asked.most,
            rate=asked.rate,
        )
        async with self._store.begin() as tx:
            await self._store.grants.add(tx, grant)
            await self._note(tx, "grant request", grant, by, grant.why)
        return await self.get(grant.id)

    async def approve(self, id: str, *, by: str = "", why: str = "") -> Grant:
        """Let it run from now on. DeskError when whoever asked approves, or who may not; the row itself refuses the first too."""
        grant = await self.get(id)
        person = self.refuse_approval(grant, by=by)
        async with self._store.begin() as tx:
            if not await self._store.grants.approve(tx, id, person.name, person.known_as):
                raise DeskError(f"grant {id} was approved or revoked before: see `posthouse grant show TARGET {id}`")
            await self._note(tx, "grant approve", grant, by, why)
        return await self.get(id)

    def refuse_approval(self, grant: Grant, *, by: str) -> Person:
        """Who approves it. DeskError where they may not; whatever anybody forgets to ask, the row refuses whoever asked for it."""
        person = self._known(by)
        if person.is_like(grant.asked_by, grant.asked_as):
            raise DeskError(
                f"{grant.asked_by} asked for it, and {person.name} is, as far as anybody can tell, the same: another one approves, "
                "from another login of the system or signed in to the console"
            )
        if not any(fnmatchcase(folded(person.name), pattern.casefold()) for pattern in self._rights.approvers):
            raise DeskError(f"{person.name} is not among those who approve: Rights(approvers=[…]) names them")
        return person

    async def revoke(self, id: str, *, by: str = "", why: str = "") -> Grant:
        """End it: the next batch is not begun."""
        person, grant = person_of(by), await self.get(id)
        async with self._store.begin() as tx:
            if not await self._store.grants.revoke(tx, id, person.name):
                raise DeskError(f"grant {id} was revoked before")
            await self._note(tx, "grant revoke", grant, by, why)
        return await self.get(id)

    async def get(self, id: str) -> Grant:
        """One of these services by its id; DeskError when there is none."""
        found = await self._store.grants.get(id)
        if found is None or found.service not in self._services:
            raise DeskError(f"there is no grant {id!r}: see `posthouse grant list TARGET`")
        return found

    async def find(self, *, running: bool = False, limit: int = 100) -> Sequence[Grant]:
        """Those of these services, newest first."""
        return await self._store.grants.find(self._services, running=running, limit=limit)

    # Spending.

    async def draw(self, service: str, verb: GrantVerb, scope: Scope, by: str, count: int = 1) -> int:
        """Spend up to `count` of a grant of theirs that covers all of this, once its pace allows; how many. Without need of a grant
        all of them at once, and nothing is asked. GrantNeeded says what is lacking: `over` where they have none that runs."""
        if not self.needed:
            return count
        person, others = self._known(by), ""
        for grant in await self._theirs(service, verb, person):
            if not grant.scope.covers(scope):
                others = others or grant.scope.words
                continue
            drawn = await self._store.grants.draw(grant.id, min(count, max(1, int(grant.rate * AT_ONCE))))
            if drawn is not None:
                if drawn.wait > 0:
                    await asyncio.sleep(drawn.wait)
                    await self._refuse_ended(grant.id)
                return drawn.events
        raise GrantNeeded(_lacking(person, verb, scope, others), over=not others)

    async def refuse_none(self, service: str, verb: GrantVerb, by: str) -> None:
        """GrantNeeded where they have none that runs, whatever it is for."""
        if self.needed and not await self._theirs(service, verb, self._known(by)):
            raise GrantNeeded(_lacking(person_of(by), verb, Scope(), ""), over=True)

    async def _theirs(self, service: str, verb: GrantVerb, person: Person) -> list[Grant]:
        running = await self._store.grants.find([service], running=True)
        return [
            one
            for one in running
            if one.verb == verb and folded(one.asked_by) == folded(person.name) and one.used < one.most
        ]

    async def refuse_over(self, service: str, verb: GrantVerb, scope: Scope, by: str) -> None:
        """GrantNeeded where nothing could be spent now, and nothing is spent."""
        if not any(grant.scope.covers(scope) for grant in await self._theirs(service, verb, self._known(by))):
            raise GrantNeeded(_lacking(person_of(by), verb, scope, ""), over=True)

    async def held(self, verb: GrantVerb, held: HeldEvent, service: str, by: str) -> None:
        """Spend one on a held event."""
        entry = held.entry
        scope = Scope(
            consumer=held.consumer,
            topic=entry.topic,
            tenant=entry.tenant,
            type=held.type,
            key=entry.key,
            since=entry.time,
            until=entry.time,
        )
        await self.draw(service, verb, scope, by)

    async def saga(self, of: SagaType, verb: GrantVerb, row: SagaRow, by: str) -> None:
        """Spend one on a saga, which has no topic, no type and no time of its own; its id is its key."""
        await self.draw(of.service, verb, Scope(consumer=of.consumer, tenant=row.tenant, key=row.id), by)

    async def _refuse_ended(self, id: str) -> None:
        """What ended while its pace was waited for."""
        grant = await self.get(id)
        if grant.revoked_at is not None or grant.left is None or grant.left <= 0:
            raise GrantNeeded(f"grant {id} is {grant.state} since this batch waited for its pace", over=True)

    def _known(self, by: str) -> Person:
        person = person_of(by)
        if self._rights.signed_in and not person.signed_in:
            raise GrantNeeded(
                "only somebody who signed in at a console may ask for a grant, approve or use one: Rights(signed_in=True)",
                over=True,
            )
        return person

    async def _note(self, tx: Transaction, verb: str, grant: Grant, by: str, why: str) -> None:
        scope = grant.scope
        action = Action(
            verb=verb,
            by=by,
            why=why,
            service=grant.service,
            consumer=scope.consumer or "",
            topic=scope.topic or "",
            tenant=scope.tenant or "",
            key=scope.key or "",
            target=f"grant {grant.id}",
            count=grant.most,
        )
        await OperatorsLog(self._store).note(tx, action)


def refuse_beyond(asked: Asked) -> None:
    """Raise DeskError for more than anybody may have."""
    try:
        msgspec.convert(msgspec.structs.asdict(asked), Asked, from_attributes=True)
    except msgspec.ValidationError as error:
        raise DeskError(
            f"a grant runs for 1 to {LONGEST_GRANT} minutes, for at least one event, at a rate above 0: {error}"
        ) from error


def _lacking(person: Person, verb: GrantVerb, scope: Scope, others: str) -> str:
    if others:
        return f"the grant of {person.name} to {verb} is for {others}, and this is for {scope.words}: narrow it, or ask for another grant"
    return (
        f"no grant to {verb} runs for {person.name}: ask for one with `posthouse grant request TARGET`, and let somebody else "
        "approve it; one that has run out is asked for anew"
    )
