"""Examining: what is found about the store and the broker of an App, and how to mend it. Changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from posthouse.app import App
from posthouse.broker import Capabilities
from posthouse.checks import Check
from posthouse.errors import BrokerError, PosthouseError, StoreError
from posthouse.local.links import encryption_check
from posthouse.outage import span
from posthouse.promise import Clause, promise_of
from posthouse.redaction import redacted
from posthouse.store import has_process_tables
from posthouse.store.sagas import NOT_OVER
from posthouse.survey import Surveyed
from posthouse.topology import Scope, plan
from posthouse.trust.secrets import Secrets
from posthouse.watch.archive import archive_checks
from posthouse.watch.order import order_checks
from posthouse.watch.permissions import permission_checks
from posthouse.watch.replays import replay_checks
from posthouse.watch.retention import retention_checks
from posthouse.watch.signatures import signature_checks
from posthouse.watch.status import forgotten

UNREACHED = "opening"
"""The name of the only check of what cannot be opened."""
UNCOMPARED = "grant the right to list what is there, or run `posthouse topology plan TARGET` as somebody who has it"


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one store or broker. `sheet` and `promise` are those of a broker that could be reached."""

    service: str
    part: str
    place: str
    checks: Sequence[Check]
    sheet: Capabilities | None = None
    promise: Sequence[Clause] = ()


async def examine(app: App, *, within: float | None = None, sagas: int | None = None) -> Sequence[Examination]:
    """The store, then the broker. What does not answer within so many seconds is told of as what cannot be opened. Stored sagas
    are compared with their classes unless more than so many are not over, since each of those is read."""
    return [await _examine_store(app, within, sagas), await _examine_broker(app, within)]


async def _examine_store(app: App, within: float | None, sagas: int | None) -> Examination:
    place = redacted(app.opened.ports.store_url)
    with contextlib.suppress(PosthouseError):  # its own examination says it
        _ = app.broker  # once it is there, it says how many connections it shares
    declared = [handlers for service in app.services for handlers in service.declared.consumers.values()]
    shapes = {handler.view for handlers in declared for handler in handlers.values() if handler.view is not None}
    checks = await _checked(lambda: app.store.checks(shapes=shapes), "is the server up, and the URL right?", within)
    checks = [
        *_encryption(app.opened.ports.store_url),
        *key_checks(app.opened.secrets),
        *signature_checks(app),
        *checks,
    ]
    return Examination(
        service=app.opened.name,
        part="store",
        place=place,
        checks=checks
        if _unreached(checks)
        else [*checks, *await _saga_checks(app, sagas), *await _schedule_checks(app), *await replay_checks(app)],
    )


def key_checks(secrets: Secrets | None) -> list[Check]:
    """Keys of secret fields that lie where a copy brings them back, or brings with them what opens them."""
    if secrets is None:
        return []
    found, keys = list[Check](), urlsplit(secrets.keys_url)
    if dict(parse_qsl(keys.query)).get("beside_store") == "true":
        fix = "give the keys a database of their own: backups of this one bring erased persons back"
        found.append(Check(name="key store", found="in the database of a service", judgement="warn", fix=fix))
    kind, _, master = secrets.master_name.partition(":")
    if kind == "file" and keys.scheme == "sqlite":
        beside = Path(unquote(keys.path)[1:]).absolute().parent
        if Path(master).absolute().parent == beside:
            fix = "keep it elsewhere, or in env:, aws-kms: or gcp-kms: whoever copies the folder can read everything"
            found.append(
                Check(name="master key", found=f"beside its key store, in {beside}", judgement="warn", fix=fix)
            )
    return found


async def _saga_checks(app: App, most: int | None) -> Sequence[Check]:
    """Whether stored sagas fit the classes that will run them."""
    if not has_process_tables(app.store):
        return []
    try:
        await app.opened.look()
        if most is not None:
            declared = {name for service in app.services for name in service.declared.saga_types}
            counts = await app.store.sagas.counts()  # tallied
            number = sum(n for (name, status), n in counts.items() if name in declared and status in NOT_OVER)
            if number > most:
                found = f"not compared with their classes here, because {number:,} are not over"
                return [Check(name="sagas", found=found, fix="`posthouse saga check TARGET` compares them")]
        return (await app.sagas.compare()).checks()
    except PosthouseError:  # the store's own checks say it
        return []


async def _schedule_checks(app: App) -> Sequence[Check]:
    """Rows of schedules that nobody declares any more."""
    if not has_process_tables(app.store):
        return []
    try:
        await app.opened.look()
        left = [view for view in await app.schedules.find() if view.declared is None]
    except StoreError:  # the store's own checks say it
        return []
    return [
        Check(
            name=f"schedule {view.name}",
            found=f"{view.service} does not declare it any more, and nobody runs it",
            judgement="warn",
            fix=f"bring it back, or forget it: `posthouse schedule forget TARGET {view.name}`",
        )
        for view in left
    ]


async def _examine_broker(app: App, within: float | None) -> Examination:
    place = redacted(app.opened.ports.broker_url)
    asked = await _checked(lambda: _broker_checks(app), "is the broker up, and the URL right?", within)
    checks = [*_encryption(app.opened.ports.broker_url), *asked]
    if _unreached(checks):
        return Examination(service=app.opened.name, part="broker", place=place, checks=checks)
    sheet = app.broker.sheet
    return Examination(
        service=app.opened.name, part="broker", place=place, checks=checks, sheet=sheet, promise=promise_of(sheet)
    )


def _encryption(url: str) -> list[Check]:
    """Who may listen on the way. Nothing is said of what does not leave this host, or cannot be read, which the opening says."""
    with contextlib.suppress(PosthouseError):
        if (check := encryption_check(url)) is not None:
            return [check]
    return []


async def _broker_checks(app: App) -> Sequence[Check]:
    """The survey comes first: it tells the broker which topics to judge."""
    surveyed = [await _topology_check(app)] if isinstance(app.broker, Surveyed) else []
    return [
        app.opened.ports.reach,
        *await app.broker.checks(),
        *await permission_checks(app),
        *surveyed,
        *await retention_checks(app),
        *await archive_checks(app),
        *await _trace_checks(app),
        *(check for service in app.services for check in order_checks(service)),
    ]


async def _topology_check(app: App) -> Check:
    """What is missing is made at the next start; what is set otherwise or left over stays until somebody decides. A service
    may run without the right to list what is there."""
    try:
        verbs = [step.verb for step in await plan(app.broker, app.opened.whole_topology(), Scope.of(app.services))]
    except BrokerError as error:
        return Check(name="topology", found=f"not compared: {error}", judgement="warn", fix=UNCOMPARED)
    missing, changed, left = (verbs.count(verb) for verb in ("create", "change", "delete"))
    if changed or left:
        found = f"{missing} missing, {changed} set otherwise, {left} not declared any more"
        return Check(name="topology", found=found, judgement="warn", fix="see `posthouse topology plan TARGET`")
    return Check(name="topology", found=f"{missing} not made yet: the next start does it" if missing else "as declared")


async def _trace_checks(app: App) -> list[Check]:
    """A broker that has nothing of a topic to which the store has sent."""
    try:
        await app.opened.look()
        gone = await forgotten(app)
    except StoreError:  # the store's own checks say it
        return []
    return [
        Check(
            name=f"log of {topic}",
            found=f"{number:,} events were sent, and the broker has no trace of them: it was deleted, or is another one",
            judgement="fail",
            fix="run a worker, which makes what it needs; see with `posthouse status TARGET` what consumers lack, and send it again: "
            "docs/missing.md",
        )
        for topic, number in gone.items()
    ]


async def _checked(ask: Callable[[], Awaitable[Sequence[Check]]], fix: str, within: float | None) -> Sequence[Check]:
    """The checks, or the one that says why there are none: what cannot even be opened is a finding too."""
    try:
        async with asyncio.timeout(within):
            return await ask()
    except PosthouseError as error:
        return [Check(name=UNREACHED, found=str(error), judgement="fail", fix=fix)]
    except TimeoutError:
        return [Check(name=UNREACHED, found=f"no answer within {span(within or 0)}", judgement="fail", fix=fix)]


def _unreached(checks: Sequence[Check]) -> bool:
    return any(check.name == UNREACHED for check in checks)
