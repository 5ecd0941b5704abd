"""reservation-service: the life of a booking, and the five sagas.

Read `status` for what may follow what, `sagas` for how it gets there, `cancellation` for the one that is a choreography,
`commands` for what the desk and the booking site ask for, `desk` for one click on what waits, `board` for what it sees."""

from melmastoon.facts.reservation import reservation
from melmastoon.reservation import board, cancellation, cash, commands, desk, erasure, sagas, tables

__all__ = ["board", "cancellation", "cash", "commands", "desk", "erasure", "reservation", "sagas", "tables"]
