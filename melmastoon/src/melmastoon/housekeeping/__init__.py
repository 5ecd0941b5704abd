"""housekeeping-service: whether a room is ready.

Read `rooms` for what a room can be and what it becomes, `guests` for who sleeps where, `tasks` for the work, `handlers` for what
is heard, `commands` for what people ask for."""

from melmastoon.facts.housekeeping import housekeeping
from melmastoon.housekeeping import commands, guests, handlers, rooms, tables, tasks

__all__ = ["commands", "guests", "handlers", "housekeeping", "rooms", "tables", "tasks"]
