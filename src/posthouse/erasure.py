"""Erasure: a person's key is destroyed, every process forgets it, whoever keeps something is told, and it is proven.

| step | what | where |
|---|---|---|
| begun | noted in the operators' log: what a crash cuts short is seen, and done again | the store |
| tombstone | the key is destroyed, for ever | the key store |
| forgotten | every process that may have the key in memory says that it forgot it, or its lease ends | the key store |
| receipt | the fact `subject.erased`, and the end of the note, in one transaction | the store |
| proof | whatever is still kept about him is looked for, and tried with what keys there are | everywhere |

Each step can be repeated: after a crash the same command goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from posthouse.app import App, app_of
from posthouse.contracts.personal import personal_fields
from posthouse.errors import ConfigurationError, DoneAlready
from posthouse.events import METADATA_LIMIT, Actor
from posthouse.history.log import stored
from posthouse.operators import OperatorsLog, operator_name
from posthouse.redaction import words_of
from posthouse.remains import Found, Remains
from posthouse.seam.inward import open_frame
from posthouse.service import Service
from posthouse.store import Action, ActionFilter, has_process_tables
from posthouse.store.actions import BEGUN, DONE
from posthouse.trust.secrets.keystore import Erasure, Holder, problem_of
from posthouse.trust.secrets.receipt import SUBJECT, ErasureReceipt
from posthouse.trust.secrets.vault import ERASE, Vault, erasure_of, reapply

log = logging.getLogger("posthouse.secrets")

REAPPLY = "subject reapply"
"""Who reads receipts in a log, in the figures."""
PAGE = 500
LOOK = 0.25
"""Seconds between two looks at who has forgotten."""
SLACK = 5.0
"""Seconds beyond its lease after which a process that fell silent counts as having forgotten: its clock may run a little slower."""
MOST = 100_000
SNAPSHOTS = "snapshots"


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `silent` are the processes that have not said that they forgot."""

    tenant: str
    subject: str
    dry_run: bool
    number: int = 0
    at: float = 0.0
    again: bool = False
    """He was erased before."""
    forgot: Sequence[str] = ()
    silent: Sequence[str] = ()
    receipt: str = ""
    """The id of the fact, where it was said this time."""
    places: Sequence[Found] = ()

    @property
    def proven(self) -> bool:
        """Whether nothing about him can be read any more in any place that there is: one that was not looked at proves nothing."""
        return not self.silent and not self.unseen and not any(found.opened or found.plain for found in self.places)

    @property
    def unseen(self) -> Sequence[str]:
        """Places that could not be looked at, or not at all that is there."""
        return [found.place for found in self.places if found.unseen]


async def erase(
    service: Service, tenant: str, subject: str, *, why: str, by: str = "", within: float = 60.0, dry_run: bool = False
) -> Erased:
    """Erase somebody, or go on where that was cut short. `within`: seconds to wait for processes. With `dry_run` only look."""
    app, vault = app_of(service), vault_of(service)
    if dry_run:
        return Erased(tenant=tenant, subject=subject, dry_run=True, places=await prove(app, tenant, subject))
    if not why.strip():
        raise ConfigurationError("say why somebody is erased, with --why: it is all that is left of the request")
    if problem := problem_of(subject):
        raise ConfigurationError(f"nobody is called so: the id {problem}")
    receipt_type = _receipt_of(service)
    await app.open()
    await vault.store.present()
    action = OperatorsLog(app.store, service.name).signed(
        Action(verb=ERASE, by=by or operator_name(), why=why, tenant=tenant, key=subject, target=f"subject {subject}")
    )
    action = msgspec.structs.replace(action, id=f"erase {subject}", outcome=BEGUN)
    known = await app.store.actions.get(tenant, action.id)
    if known is None:
        known = await _begin(app, action)
    before = await vault.store.erased(tenant, [subject])
    stands = await vault.store.erase(
        Erasure(tenant=tenant, subject=subject, why=known.why, by=known.by, at=app.clock.now())
    )
    await vault.keyring.look()
    forgot, silent = await _forgotten(vault, stands.number, within)
    receipt = await _say(service, receipt_type, stands, known)
    dropped = await _drop_snapshots(app)
    places = [*await prove(app, tenant, subject), Found(place=SNAPSHOTS, note=f"{dropped:,} dropped")]
    return Erased(
        tenant=tenant, subject=subject, dry_run=False, number=stands.number, at=stands.at, again=bool(before),
        forgot=forgot, silent=silent, receipt=receipt, places=places,
    )  # fmt: skip


class Reapplied(NamedTuple):
    """What came of bringing tombstones back: so many persons were erased `again`; so many receipts were `refused`, and say nothing."""

    again: int
    refused: int = 0


async def reapply_all(service: Service, *, log: bool) -> Reapplied:
    """Bring tombstones back into a key store that lost them: from the operators' log, and with `log` from the receipts in the
    broker, each proved as its consumers do. What cannot be read or proved is logged and passed over."""
    app, vault = app_of(service), vault_of(service)
    known = [erasure_of(one) for one in await app.store.actions.find(ActionFilter(verb=ERASE), MOST)]
    again, refused = await reapply(vault.store, known), 0
    if log:
        receipts, refused = await _receipts(app, _receipt_of(service))
        again += await reapply(vault.store, receipts)
    return Reapplied(again, refused)


def vault_of(service: Service) -> Vault:
    """What encrypts the personal fields of a service; ConfigurationError where nothing does."""
    vault = app_of(service).opened.vault
    if vault is None:
        raise ConfigurationError(
            f"{service.name} encrypts nothing: give its App secrets=Secrets(…), or set POSTHOUSE_SECRETS_KEYS"
        )
    return vault


def _receipt_of(service: Service) -> type[ErasureReceipt]:
    full = f"{service.namespace}.{service.name}.{SUBJECT}" if service.namespace else f"{service.name}.{SUBJECT}"
    known = service.declared.catalogue.get(full)
    if known is None or not issubclass(known.payload.cls, ErasureReceipt):
        raise ConfigurationError(
            f"{service.name} has no receipt for an erasure, by which others hear of it: declare it where its events are, as in "
            f"GuestErased = subject_erased({service.name})"
        )
    return known.payload.cls


async def _begin(app: App, action: Action) -> Action:
    try:
        async with app.store.begin() as tx:
            await app.store.actions.add(tx, action)
    except DoneAlready:
        pass  # somebody else asks for the same
    return await app.store.actions.get(action.tenant, action.id) or action


async def _forgotten(vault: Vault, number: int, within: float) -> tuple[list[str], list[str]]:
    """Names of the processes that have forgotten, and of those that have not said so in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        holders = await vault.store.holders()
        waited = [one for one in holders if not _has_forgotten(one, number)]
        if not waited or loop.time() > deadline:
            return [one.name for one in holders if one not in waited], [one.name for one in waited]
        await asyncio.sleep(LOOK)


def _has_forgotten(holder: Holder, number: int) -> bool:
    return holder.forgot >= number or holder.age > holder.lease + SLACK


async def _say(service: Service, receipt: type[ErasureReceipt], stands: Erasure, action: Action) -> str:
    """The receipt and the end of the note, once; the id of the fact, empty where it was said before."""
    if action.outcome == DONE:
        return ""
    app = app_of(service)
    actor = Actor(kind="user", id=action.by)
    async with service.transaction(stands.tenant, actor=actor) as tx:
        said = tx.publish(
            receipt(subject=stands.subject, at=stands.at, number=stands.number),
            idempotency_key=f"erased {stands.subject} {stands.number}",
        )
        await app.store.actions.end(tx.transaction, msgspec.structs.replace(action, outcome=DONE))
    return said


async def _drop_snapshots(app: App) -> int:
    """Of what may hold something about a person. They are a cache, and none is taken any more where fields are secret."""
    if not has_process_tables(app.store):
        return 0
    aggregates = [one for service in app.services for one in service.declared.aggregates.values()]
    personal = [one for one in aggregates if any(personal_fields(known.payload.cls) for known in one.events)]
    return sum([await app.store.streams.drop_snapshots(one.name) for one in personal])


async def _receipts(app: App, receipt: type[ErasureReceipt]) -> tuple[list[Erasure], int]:
    """The erasures that the log has receipts of, and how many frames there were refused."""
    known = next(of for service in app.services for of in service.declared.own_events if of.payload.cls is receipt)
    found, refused = list[Erasure](), 0
    async with aclosing(stored(app.broker, [known.topic], None)) as deliveries:
        async for delivery in deliveries:
            try:
                event = open_frame(app.opened.seam, REAPPLY, delivery, app.opened.settings.limit + METADATA_LIMIT)
                if event.type != known.name:
                    continue
                said = receipt(**msgspec.json.decode(event.data))
            except Exception as error:  # what is wrong with a frame belongs to that frame
                refused += 1
                log.warning("%s: %r says nothing: %s", known.topic, delivery.frame.id, words_of(error))
                continue
            found.append(
                Erasure(tenant=event.tenant, subject=said.subject, why="its receipt in the log", by="", at=said.at)
            )
    return found, refused


# The proof.


async def prove(app: App, tenant: str, subject: str) -> list[Found]:
    """Look everywhere for what is kept about somebody, and try to decrypt it with what keys there are now."""
    vault = vault_of(app.services[0])
    keys = await vault.keyring.fetch(tenant, [subject])
    remains = Remains(app, tenant, subject, keys)
    return [one async for one in remains.places()]
