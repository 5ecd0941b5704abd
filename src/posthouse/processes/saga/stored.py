"""Stored: the state of a saga as JSON that two releases share. Each writes the fields that it knows, and keeps the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec

TAG = "type"
"""The field by which msgspec tells the structs of a union apart."""


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


def with_others(state: bytes, was: Mapping[str, str], stored: bytes, known: bytes, *, inside: bool = True) -> bytes:
    """A new state together with what `stored` held beyond `known`, which is all that this release read of it; and with each renamed field
    under its old name besides. Without `inside`, of the saga's own fields alone."""
    if not was and stored == known:
        return state
    fields: dict[str, object] = json.loads(state)
    _merge(json.loads(stored), json.loads(known), fields, inside=inside)
    fields |= {old: fields[name] for name, old in was.items()}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _merge(stored: object, known: object, now: object, *, inside: bool = True) -> None:
    """Add to `now` what only `stored` has. What stands in the same place is the same thing; an item of a list is wherever it is
    found again."""
    if isinstance(stored, dict) and isinstance(known, dict) and isinstance(now, dict):
        for name, value in stored.items():
            if name not in known:
                now.setdefault(name, value)
            elif name in now and inside:
                _merge(value, known[name], now[name])
    elif isinstance(stored, list) and isinstance(known, list) and isinstance(now, list) and len(stored) == len(known):
        left = list(zip(stored, known, strict=True))
        changed = [item for item in now if not _found(left, item, lambda one, item: one == item)]
        for item in changed:
            _found(left, item, _is_same)


def _found(left: list[tuple[object, object]], item: object, same: Callable[[object, object], bool]) -> bool:
    """Whether an item was there before; then it has what is unknown of it. Where several may be meant, none is."""
    places = [at for at, (_, known) in enumerate(left) if same(known, item)]
    if not places or any(left[at] != left[places[0]] for at in places):
        return False
    _merge(*left.pop(places[0]), item)
    return True


def _is_same(known: object, item: object) -> bool:
    """Whether an item that changed is the one that it was: by its id, or else by its first field."""
    if not isinstance(known, dict) or not isinstance(item, dict):
        return False
    by = "id" if "id" in known else next((name for name in known if name != TAG), None)
    return by is not None and known[by] == item.get(by)
