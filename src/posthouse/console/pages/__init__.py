"""Pages: what each of them shows, as data. A module holds `PAGES`: the functions by the path under /api that they answer."""

from posthouse.console.acting import table as acts
from posthouse.console.dispatch import gathered
from posthouse.console.pages import (
    catalogue,
    consumers,
    events,
    health,
    held,
    home,
    jobs,
    keys,
    log,
    map,
    outbox,
    processes,
    projections,
    relays,
    runbooks,
    sagas,
    schedules,
    services,
    tenants,
    timers,
)

TABLES = gathered(
    acts.PAGES,
    catalogue.PAGES,
    consumers.PAGES,
    events.PAGES,
    health.PAGES,
    held.PAGES,
    home.PAGES,
    jobs.PAGES,
    keys.PAGES,
    log.PAGES,
    map.PAGES,
    outbox.PAGES,
    processes.PAGES,
    projections.PAGES,
    relays.PAGES,
    runbooks.PAGES,
    sagas.PAGES,
    schedules.PAGES,
    services.PAGES,
    tenants.PAGES,
    timers.PAGES,
)
"""All pages, by path."""
