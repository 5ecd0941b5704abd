"""Stored: the state of a saga as JSON that two releases share. Each writes the fields that it knows, and keeps the others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec


def under_new_names(state: bytes, was: Mapping[str, str]) -> bytes:
    """A stored state with each field under the name that it has now. Where both names are there and differ, the one that comes
    first counts: whoever wrote last put what it knows before what it keeps for others."""
    if not was:
        return state
    fields = msgspec.json.decode(state, type=dict[str, msgspec.Raw])
    places = {name: place for place, name in enumerate(fields)}
    for name, old in was.items():
        if old in fields and (name not in fields or places[old] < places[name]):
            fields[name] = fields[old]
    return msgspec.json.encode(fields)


def with_others(state: bytes, was: Mapping[str, str], stored: bytes, known: bytes) -> bytes:
    """A new state together with what `stored` held beyond `known`, which is all that this release read of it; and with each renamed field
    under its old name besides."""
    if not was and stored == known:
        return state
    fields: dict[str, object] = json.loads(state)
    _merge(json.loads(stored), json.loads(known), fields)
    fields |= {old: fields[name] for name, old in was.items()}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _merge(stored: object, known: object, now: object) -> None:
    """Add to `now` what only `stored` has. Items of a list are taken for the same by their place while their number is the same, and
    else while nothing that is known of them has changed."""
    if isinstance(stored, dict) and isinstance(known, dict) and isinstance(now, dict):
        for name, value in stored.items():
            if name not in known:
                now.setdefault(name, value)
            elif name in now:
                _merge(value, known[name], now[name])
    elif isinstance(stored, list) and isinstance(known, list) and isinstance(now, list):
        left = list(zip(stored, known, strict=True)) if len(stored) == len(known) else []
        same_number = len(left) == len(now)
        for item in now:
            found = 0 if same_number else next((at for at, (_, one) in enumerate(left) if one == item), None)
            if found is not None:
                _merge(*left.pop(found), item)
