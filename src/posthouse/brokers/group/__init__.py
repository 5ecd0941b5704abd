"""Consumer groups for logs that have none: assignment, window and redelivery, written once.

`log.py` is the port that a log implements, `member.py` the `Stream` over it. `ledger.py` implements that port for any store
with compare and set.
"""
