"""Pages: what each of them shows, as data. A module holds `PAGES`: the functions by the path under /api that they answer."""

from posthouse.console.acting import table as acts
from posthouse.console.dispatch import gathered
from posthouse.console.pages import (
    consumers,
    outbox,
    processes,
    projections,
    relays,
    schedules,
    services,
)

TABLES = gathered(
    acts.PAGES,
    consumers.PAGES,
    outbox.PAGES,
    processes.PAGES,
    projections.PAGES,
    relays.PAGES,
    schedules.PAGES,
    services.PAGES,
)
"""All pages, by path."""
