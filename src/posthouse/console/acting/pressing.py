"""Pressing: from a request to an act: who may, with what, is it still as it was seen, done once, and what came of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from posthouse.app import App
from posthouse.clock import new_id
from posthouse.console.access.guard import OPERATOR
from posthouse.console.access.who import Who
from posthouse.console.acting.act import OURS, AnyAct, Call, Look, Outcome, refuse_rights
from posthouse.console.asking import Refusal, refuse_nul
from posthouse.console.estate import Estate
from posthouse.errors import (
    BrokerUnavailable,
    ChangedSince,
    CommitUnknown,
    ConfigurationError,
    ContractError,
    DeskError,
    DoneAlready,
    PosthouseError,
    RebuildStopped,
    SeekUnsupported,
    StoreBusy,
    StoreUnavailable,
    did_you_mean,
)
from posthouse.operators import pressed
from posthouse.redaction import words_of
from posthouse.store.patience import waiting_at_most
from posthouse.trust.rights import signed_in

LONGEST_WHY = 2_000
LOOKS_WITHIN = 20.0
"""Seconds that a preview may take: a browser waits for thirty."""
WAITS = 5.0
"""Seconds that it waits for what somebody else holds: a key whose handler runs."""
DONE_WITHIN = 25.0
"""Seconds that an act may take, with all that it asks."""
PRESS = re.compile(r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
BUSY = "Nothing was changed. Press again when that has ended: it is done once."
ONCE = "Press again: it is done once, whatever came of the first time."


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What a preview hands out and gets back: whose the thing was, and in which state."""

    tenant: str
    turn: int | None
    state: str


async def press(
    acts: Mapping[str, AnyAct],
    estate: Estate,
    who: Who,
    name: str,
    body: Mapping[str, object],
    *,
    through: str = "console",
) -> Mapping[str, object] | Outcome:
    """Look, or do. Raises Refusal with a sentence: 400 for what is written wrong, 403 for who may not, 404 for what is not there, 409
    for what does not fit or has changed since it was seen, 503 for a store or a broker that is away."""
    act = acts.get(name)
    if act is None:
        raise Refusal(404, f"There is no act {name!r}.{did_you_mean(name, acts)}")
    refuse_rights(act, who)
    refuse_nul(body)
    service = estate.service(_text(body, "service"))
    parameters = parameters_of(act, body)
    app = await estate.one(service.name, _itself)
    call: Call[object] = Call(app=app, service=service, who=who, parameters=parameters, through=through)
    with explained(), waiting_at_most(WAITS), signed_in(through == "console" and who != OPERATOR):
        if act.grant is not None:
            await app.grants.refuse_none(service.name, act.grant, call.by)
        if body.get("dry", False) is not False:
            async with asyncio.timeout(LOOKS_WITHIN):
                return _preview(act, await act.look(call))
        call = msgspec.structs.replace(call, why=_why(body), press=_press(body))
        seen = _seen(body)
        try:
            async with asyncio.timeout(DONE_WITHIN):
                return await _done(act, call, seen)
        except TimeoutError as error:
            raise Refusal(503, f"It took more than {DONE_WITHIN:g} seconds: it may be done, or not.", ONCE) from error


async def _done(act: AnyAct, call: Call[object], seen: Seen) -> Outcome:
    if (before := await _before(call, seen)) is not None:
        return before
    look = await act.look(call)
    if Seen(look.tenant, look.turn, look.seen) != seen:
        raise ChangedSince("it was changed since you looked at it, and nothing was done: look again")
    try:
        with pressed(call.press, look.turn):
            return await act.do(call, look)
    except DoneAlready:  # the same press came twice at once
        return msgspec.structs.replace(Outcome(sentence="It was done already by this very press."), again=True)


async def _before(call: Call[object], seen: Seen) -> Outcome | None:
    """What came of this very press, if it came before."""
    noted = await call.app.store.actions.get(seen.tenant, call.press)
    if noted is None:
        return None
    if noted.by != call.by or (seen.tenant and not call.who.sees(seen.tenant)):
        raise Refusal(409, "This press was somebody else's.", "Open the dialog again.")
    job = await call.app.store.jobs.get(call.press)
    if noted.outcome == "begun" and job is None:
        return Outcome(sentence="It was begun by this very press, and has not ended yet.", again=True)
    done = "It was done already by this very press" + ("." if noted.outcome == "done" else f": {noted.outcome}.")
    return Outcome(sentence=done, job=None if job is None else job.id, again=True)


def _preview(act: AnyAct, look: Look) -> Mapping[str, object]:
    return {
        "name": act.name,
        "title": look.title or act.title,
        "sentence": look.sentence,
        "danger": look.danger,
        "lines": look.lines,
        "counts": look.counts,
        "changes": look.changes,
        "bulk": act.bulk,
        "seen": msgspec.json.encode(Seen(look.tenant, look.turn, look.seen)).decode(),
        "press": new_id(),
    }


def parameters_of(act: AnyAct, body: Mapping[str, object]) -> object:
    """What the act takes, checked. Raises Refusal 400, with the nearest name for one that is misspelt."""
    known = [field.encode_name for field in msgspec.structs.fields(act.parameters)]
    given = {name: value for name, value in body.items() if name not in OURS and value is not None}
    for name in given:
        if name not in known:
            takes = f"It takes {', '.join(known)}." if known else "It takes none."
            raise Refusal(400, f"{act.name} has no parameter {name!r}.{did_you_mean(name, known)}", takes)
    try:
        parameters: object = msgspec.convert(given, act.parameters)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"{act.name}: {error}.", f"It takes {', '.join(known)}.") from error
    return parameters


@contextmanager
def explained() -> Iterator[None]:
    """Errors of ours as what a person at a browser can do something with."""
    try:
        yield
    except ChangedSince as error:
        raise Refusal(409, _sentence(error), "Open the dialog again to see how it stands.") from error
    except (DeskError, RebuildStopped, SeekUnsupported) as error:
        raise Refusal(409, _sentence(error), "Nothing was changed.") from error
    except (ConfigurationError, ContractError) as error:
        raise Refusal(400, _sentence(error), "Nothing was changed.") from error
    except CommitUnknown as error:
        raise Refusal(503, "The answer of the database was lost: it may be done, or not.", ONCE) from error
    except StoreBusy as error:
        raise Refusal(
            503,
            f"Somebody else holds what this needs, and did for {WAITS:g} seconds: a handler at work on its key?",
            BUSY,
        ) from error
    except (StoreUnavailable, BrokerUnavailable) as error:
        raise Refusal(503, _sentence(error), ONCE) from error
    except TimeoutError as error:
        raise Refusal(503, "It took too long to find out what would happen.", "Ask for less, or try again.") from error
    except PosthouseError as error:
        raise Refusal(500, _sentence(error)) from error


def _sentence(error: Exception) -> str:
    """As people at a browser may read it: an option of a command is a box to tick."""
    said = re.sub(r"with --force\b", "with “even so” ticked", words_of(error))
    said = re.sub(r": see `posthouse [^`]*`", "", said)
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "?", "!")) else ".")


def _text(body: Mapping[str, object], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise Refusal(400, f"The request does not say {name!r}, as text.")
    return value


def _why(body: Mapping[str, object]) -> str:
    why = body.get("why")
    if not isinstance(why, str) or not why.strip():
        raise Refusal(400, "Say why.", "It is kept in the operators' log: the next one on call will ask.")
    if len(why) > LONGEST_WHY:
        raise Refusal(400, f"Say why in at most {LONGEST_WHY:,} characters; these are {len(why):,}.")
    return why.strip()


def _press(body: Mapping[str, object]) -> str:
    id = _text(body, "press")
    if not PRESS.match(id):
        raise Refusal(400, "`press` is not one that a preview gave out.", "Look first: send it with `dry`.")
    return id


def _seen(body: Mapping[str, object]) -> Seen:
    try:
        seen = msgspec.json.decode(_text(body, "seen"), type=Seen)
    except msgspec.DecodeError as error:
        raise Refusal(400, "`seen` is not what a preview gave out.", "Look first: send it with `dry`.") from error
    refuse_nul({"seen": seen.tenant + seen.state})
    return seen


async def _itself(app: App) -> App:
    return app
