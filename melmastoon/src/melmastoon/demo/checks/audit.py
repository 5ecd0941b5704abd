"""The audit chain has every fact once.

Known from audit's own rows beside what the witness saw go out: every fact of the platform is one entry, under its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from melmastoon.demo.books import Books

ENTRIES = "SELECT tenant, entry_id FROM audit_entry"


def missing(books: Books, subjects: frozenset[str]) -> Sequence[str]:
    """Facts of these subjects that are not one entry, in words."""
    times = Counter((tenant, entry) for tenant, entry in books.rows("audit", ENTRIES))
    return [
        f"{fact.type} {fact.id} is {times[fact.tenant, fact.id]} times in the audit chain"
        for fact in books.facts
        if fact.type in subjects and times[fact.tenant, fact.id] != 1
    ]
