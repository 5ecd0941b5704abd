"""search-aggregation-service at work: what guests find, across all tenants."""

from melmastoon.facts.search_aggregation import search_aggregation
from melmastoon.search_aggregation import handlers, queries, tables

__all__ = ["handlers", "queries", "search_aggregation", "tables"]
