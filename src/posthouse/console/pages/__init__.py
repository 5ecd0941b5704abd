"""Pages: what each of them shows, as data. A module holds `PAGES`: the functions by the path under /api that they answer."""

from posthouse.console.acting import table as acts
from posthouse.console.dispatch import gathered
from posthouse.console.pages import (
    catalogue,
    consumers,
    health,
    home,
    jobs,
    map,
    outbox,
    processes,
    projections,
    relays,
    schedules,
    services,
    tenants,
)

TABLES = gathered(
    acts.PAGES,
    catalogue.PAGES,
    consumers.PAGES,
    health.PAGES,
    home.PAGES,
    jobs.PAGES,
    map.PAGES,
    outbox.PAGES,
    processes.PAGES,
    projections.PAGES,
    relays.PAGES,
    schedules.PAGES,
    services.PAGES,
    tenants.PAGES,
)
"""All pages, by path."""
