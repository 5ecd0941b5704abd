"""Counting: everything that is checked, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from melmastoon.demo.books import Books, Reader
from melmastoon.demo.checks import audit, money, outcomes
from melmastoon.demo.checks.conservation import conservation
from melmastoon.demo.checks.keys import lingering
from melmastoon.demo.checks.rooms import oversold
from melmastoon.demo.checks.trust import trust
from melmastoon.demo.figures import Figures
from melmastoon.demo.secrets import keys_file
from posthouse import Service


def figures(
    reader: Reader, folder: Path, services: Sequence[Service], *, kills: int, days: float, seconds: float
) -> Figures:
    """Read all books, and compare them; those of the vendors and the keys of guests are in the folder of the play."""
    vendors = folder / "vendors.db"
    books = Books(reader, [service.name for service in services])
    trusted = trust(books, keys_file(folder))
    kept = conservation(books, services, frozenset(trusted.forged))
    accounts = money.accounts(books, vendors)
    sagas = outcomes.sagas(books)
    subjects = frozenset(
        known.name
        for service in services
        for known in service.declared.catalogue
        if known.subject.service == service.name
    )
    events = Counter(dict.fromkeys(sorted(subjects), 0))
    events.update(fact.type for fact in books.facts if fact.type in subjects)
    nights, keys, unbalanced = oversold(books), lingering(books, vendors), money.unbalanced(accounts)
    unaudited = audit.missing(books, subjects)
    return Figures(
        bookings=outcomes.bookings(books),
        sagas=dict(sorted(sum((Counter(counts) for counts in sagas.values()), Counter[str]()).items())),
        sagas_by_kind=sagas,
        compensations=outcomes.compensations(books),
        partials=outcomes.partials(books),
        alerts=outcomes.alerts(books),
        begun_again=outcomes.begun_again(books),
        stays_extended=outcomes.stays_extended(books),
        events=dict(events),
        money=money.tenants(accounts),
        money_balanced=not unbalanced,
        nights_oversold=len(nights),
        keys_lingering=len(keys),
        sagas_unfinished=outcomes.unfinished(sagas),
        lost=kept.lost + len(unaudited),
        duplicated=kept.duplicated,
        out_of_order=kept.out_of_order,
        held=kept.held,
        erased=trusted.erased,
        noise=trusted.noise,
        readable=trusted.readable,
        forged=len(trusted.forged),
        findings=[*kept.findings, *trusted.findings, *unaudited[:5], *nights[:5], *keys[:5], *unbalanced[:5]],
        facts=len(books.facts),
        applied=len(books.applied),
        kills=kills,
        simulated_days=round(days, 1),
        seconds=round(seconds, 1),
    )
