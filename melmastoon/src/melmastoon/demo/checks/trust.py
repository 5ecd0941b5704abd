"""Who was erased cannot be told any more, and what was forged was believed by nobody.

Read from the tables as they are: the library is asked nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from melmastoon.demo.books import Books

ERASED = "⟨erased⟩"
PERSONAL = ("name", "email", "phone")

Person = tuple[str, str]
"""A tenant, and the id of a guest."""


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    erased: int
    noise: int
    readable: int
    forged: Sequence[tuple[str, str]]
    findings: Sequence[str]


def trust(books: Books, keys: Path) -> Trust:
    """`keys` is the file with the keys of guests."""
    erased = {(fact.tenant, fact.data["subject"]) for fact in books.of("iam.subject.erased.v1")}
    noise, found = _said(books, erased)
    found += [f"{place} still tells who {guest} of {tenant} was" for place, (tenant, guest) in _kept(books, erased)]
    found += [f"the key of {guest} of {tenant} is still there" for tenant, guest in sorted(_keys(keys) & erased)]
    return Trust(erased=len(erased), noise=noise, readable=len(found), forged=_forged(books), findings=found[:5])


def _said(books: Books, erased: set[Person]) -> tuple[int, list[str]]:
    """How many values about them were encrypted in what was said, and which were not."""
    noise, plain = 0, list[str]()
    for fact in books.facts:
        guest = fact.data.get("guest")
        if not isinstance(guest, dict) or (fact.tenant, guest.get("guest_id", "")) not in erased:
            continue
        for name, value in [*((name, guest[name]) for name in PERSONAL), ("note", fact.data.get("note"))]:
            if isinstance(value, dict) and "$secret" in value:
                noise += value["$secret"] > 0  # 0: it was said when the guest was erased already
            elif value not in (None, "", ERASED):
                plain.append(f"{fact.type} {fact.id} says {name} in plain")
    return noise, plain


def _kept(books: Books, erased: set[Person]) -> Iterator[tuple[str, Person]]:
    """Read models that know more about them than that they were here."""
    for tenant, guest_id, guest, words in books.rows(
        "reservation", "SELECT tenant, guest_id, guest, special_requests FROM bookings"
    ):
        if (tenant, guest_id) in erased and not _is_nobody({**json.loads(guest), "note": words}):
            yield "the booking", (tenant, guest_id)
    contacts = "SELECT tenant, guest_id, name, email, phone FROM notification_contact"
    for tenant, guest_id, *values in books.rows("notification", contacts):
        if (tenant, guest_id) in erased and set(values) != {ERASED}:
            yield "notification", (tenant, guest_id)
    for tenant, guest_id, body in books.rows("sync", "SELECT tenant, guest_id, body FROM sync_delta"):
        said = json.loads(body)
        if (tenant, guest_id) in erased and not _is_nobody({**said["guest"], "note": said.get("note", "")}):
            yield "sync", (tenant, guest_id)
    for who in books.rows("ai_orchestrator", "SELECT tenant, guest_id FROM ai_stay"):
        if who in erased:
            yield "ai_orchestrator", (who[0], who[1])


def _is_nobody(guest: Mapping[str, Any]) -> bool:
    return all(guest[name] == ERASED for name in PERSONAL) and guest["note"] in ("", ERASED)


def _keys(file: Path) -> set[Person]:
    """Whoever has a key."""
    if not file.exists():
        return set()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return set(connection.execute("SELECT tenant, subject FROM posthouse_key WHERE wrapped IS NOT NULL"))


def _forged(books: Books) -> Sequence[tuple[str, str]]:
    """What nobody of the house said, by consumer and id, as it is quarantined."""
    true = {fact.id for fact in books.facts}
    sql = f"SELECT consumer, event_id, reason FROM {books.library('held')} WHERE state = 'quarantined'"
    rows = [row for service in books.services for row in books.rows(service, sql)]
    return [(consumer, id) for consumer, id, reason in rows if id not in true and reason.startswith("forged")]
