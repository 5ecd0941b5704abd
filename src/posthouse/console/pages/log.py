"""The operators' log: who did what, when and why, and what it changed."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from posthouse.app import App
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.listing import everybodys, lines_wanted, listed, place_of
from posthouse.events import timestamp
from posthouse.store.actions import Action, ActionFilter

_ID = re.compile(r"[0-9a-f-]{36}")


async def log(ask: Ask) -> object:
    """Actions of all stores, newest first; `?service=` of one of them. Filters: verb, by, event, since, until. What jobs did item by
    item is left out, so that a person's acts are seen: `?job=` shows it of one job. Who asks for one event sees all of it."""
    everybodys(ask, "The log tells of acts")
    limit, after = lines_wanted(ask), place_of(ask, tuple[float, str])
    wanted = ActionFilter(
        since=_moment(ask, "since"),
        until=_moment(ask, "until"),
        verb=ask.query.get("verb") or None,
        by=ask.query.get("by") or None,
        event_id=ask.query.get("event") or None,
        job=_job(ask),
    )
    service = ask.query.get("service")

    async def of(app: App) -> list[Action]:
        return list(await app.store.browsing.actions(wanted, after=after, limit=limit + 1))

    found = await ask.each(of, [service] if service else None)
    every = {action.id: action for some in found.values() for action in some}
    newest = heapq.nlargest(limit + 1, every.values(), key=lambda one: (one.at, one.id))
    return listed(newest, limit, lambda one: _facts(ask, one), lambda one: (one.at, one.id))


def _facts(ask: Ask, action: Action) -> Mapping[str, object]:
    """What was changed may be of a payload."""
    payload = action.verb == "held edit" and not ask.who.payloads
    return {
        **msgspec.structs.asdict(action),
        "at": timestamp(action.at),
        "changed": [
            {"name": name, "before": None if payload else _said(before), "after": None if payload else _said(after)}
            for name, (before, after) in action.changed.items()
        ],
    }


def _job(ask: Ask) -> str | None:
    job = ask.query.get("job", "")
    if job and not _ID.fullmatch(job):
        raise Refusal(400, f"job={job[:40]!r} is no id of a job.")
    return job or (None if ask.query.get("event") else "")


def _said(value: object) -> str:
    """As text: a browser would round a large number."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _moment(ask: Ask, name: str) -> float | None:
    if not (text := ask.query.get(name)):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refusal(400, f"{name}={text!r} is no time.", "Write it as 2026-04-22T10:00:00Z.") from error
    if moment.tzinfo is None:
        raise Refusal(400, f"{name}={text!r} has no zone.", "Write it as 2026-04-22T10:00:00Z.")
    return moment.timestamp()


PAGES: Mapping[str, Page] = {"/log": log}
