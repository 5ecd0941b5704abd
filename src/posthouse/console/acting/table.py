"""Table: all acts by name, and the paths that they are pressed and listed by."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.console.access.who import Who
from posthouse.console.acting import bulk, grants, held, outbox, processes, replaying
from posthouse.console.acting.act import AnyAct, Outcome
from posthouse.console.acting.pressing import press
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.estate import Estate

_OF_THINGS = {
    act.name: act for act in (*held.ACTS, *outbox.ACTS, *processes.ACTS, *replaying.ACTS, *bulk.ACTS, *grants.ACTS)
}
ACTS: Mapping[str, AnyAct] = {**_OF_THINGS, **{act.name: act for act in bulk.deciding(_OF_THINGS)}}

LARGEST = 9 * 2**20
"""Bytes of a request: the largest payload that an event may have, and what is said about it."""


async def pressed(estate: Estate, who: Who, name: str, body: bytes) -> Mapping[str, object] | Outcome:
    """What a POST to /api/acts/NAME answers."""
    try:
        said = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        given = {field: value if field == "set" else msgspec.json.decode(value) for field, value in said.items()}
        if "set" in given:
            given["set"] = msgspec.json.decode(said["set"], type=dict[str, msgspec.Raw] | None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "The request is no JSON object.", "Send what the act takes: see GET /api/acts.") from error
    return await press(ACTS, estate, who, name, given)


async def listed(ask: Ask) -> object:
    """Every act, and whether this person may press it."""
    return [
        {
            "name": act.name,
            "title": act.title,
            "role": act.role,
            "parameters": [field.encode_name for field in msgspec.structs.fields(act.parameters)],
            "bulk": act.bulk,
            "may": ask.who.may(act.role)
            and not (act.all_tenants and ask.who.tenants is not None)
            and (ask.who.payloads or not act.payloads),
        }
        for act in ACTS.values()
    ]


PAGES: dict[str, Page] = {"/acts": listed, "/grants": grants.listed}
