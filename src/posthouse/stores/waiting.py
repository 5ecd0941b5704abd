"""Waiting: what a store's own tables say about work that nobody does, or that waits for a person."""

from __future__ import annotations

from posthouse.checks import Check, judged


def waiting_checks(*, shards: int, held: int, stuck: int, stuck_keys: int, dead: int) -> list[Check]:
    """`held` of the `shards` have a relay; `stuck` rows of `stuck_keys` keys were refused by the broker or wait behind
    one; `dead` events wait for an operator."""
    return [
        judged(
            "shards",
            f"relays hold {held} of {shards}",
            wrong=held < shards,
            fix="what is committed is not sent by anybody: start `posthouse run` (shards move within seconds)",
        ),
        judged(
            "stuck keys",
            f"{stuck_keys:,} keys, {stuck:,} rows" if stuck else "none",
            wrong=stuck > 0,
            fix="`posthouse outbox list TARGET` says why the broker refuses them, `posthouse outbox retry TARGET` tries again",
        ),
        judged(
            "dead events",
            f"{dead:,}" if dead else "none",
            wrong=dead > 0,
            fix="`posthouse held list TARGET --state dead`: retry, edit or skip them; their keys wait",
        ),
    ]
