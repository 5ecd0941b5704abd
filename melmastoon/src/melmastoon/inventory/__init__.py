"""inventory-service: which room is whose on which night. Its guard is a primary key: one booking per room and night.

Read `allocation` for how a room is found, `handlers` for what bookings ask, `rooms` for what there is to sell, `commands` for
stop-sells."""

from melmastoon.facts.inventory import inventory
from melmastoon.inventory import allocation, commands, handlers, rooms, tables

__all__ = ["allocation", "commands", "handlers", "inventory", "rooms", "tables"]
