"""All folios: each is a stream of its facts, and appending one publishes it."""

from __future__ import annotations

from melmastoon.billing.folio import Folio, FolioFact, evolve
from melmastoon.facts.billing import ChargePosted, FolioClosed, FolioOpened, RefundPosted, billing
from posthouse import Aggregate

folios: Aggregate[Folio, FolioFact] = billing.aggregate(
    "folio",
    initial=Folio,
    evolve=evolve,
    events=(FolioOpened, ChargePosted, RefundPosted, FolioClosed),
    snapshot_every=50,
)
