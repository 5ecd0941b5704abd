"""Relays: who holds which share of which outbox."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page
from posthouse.console.listing import everybodys
from posthouse.watch.liveness import is_running, of_app


async def relays(ask: Ask) -> object:
    """The shards of each store, with their leases; the relays that hold them, and the processes that run one."""
    everybodys(ask, "Relays send events")
    found = await ask.each(_of)
    return {"stores": [{"service": name, **facts} for name, facts in found.items()]}


async def _of(app: App) -> dict[str, object]:
    leases, gauges = await app.store.outbox.leases(), await app.store.gauges()
    workers = [one for one in of_app(app, await app.store.workers.read()) if is_running(one) and "relay" in one.parts]
    counts = gauges.counts
    return {
        "services": [service.name for service in app.services],
        "shards": [
            {
                "number": one.number,
                "epoch": str(one.epoch),
                "process": one.owner.rpartition(" ")[0] or None,
                "relay": one.owner.rpartition(" ")[2] or None,
                "left": one.left,
            }
            for one in leases
        ],
        "leased": gauges.shards_leased,
        "free": gauges.shards_free,
        "taken_over": gauges.leases,
        "unsent": sum(counts.unsent.values()) - sum(counts.refused.values()),
        "oldest": gauges.oldest_unsent,
        "wake": await app.store.wake(),
        "processes": [one.name for one in workers],
    }


PAGES: Mapping[str, Page] = {"/relays": relays}
