"""Held states: what each means for its event and its key, and what to press. The words are those of docs/held.md."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.store import HeldState


class Meaning(msgspec.Struct, frozen=True):
    """`means`, `key` and `press` are the sentences of a state; `acts` the names of what may be pressed, the likeliest first."""

    means: str
    key: str
    press: str
    acts: Sequence[str]


MEANINGS: dict[HeldState, Meaning] = {
    "retrying": Meaning(
        "failed, or was in flight during a crash; runs again at its time",
        "waits",
        "nothing, or `retry` to run it now",
        ("held.retry", "held.edit", "held.skip", "held.quarantine"),
    ),
    "blocked": Meaning("an earlier event of its key is held", "waits", "deal with the first one", ()),
    "gap": Meaning(
        "an earlier number never came",
        "waits",
        "wait; `release` gives the missing number up",
        ("held.release", "held.quarantine"),
    ),
    "dead": Meaning(
        "its attempts are spent, or no attempt can help",
        "waits",
        "mend the cause and `retry`; or `edit`; or `skip`",
        ("held.retry", "held.edit", "held.skip", "held.quarantine"),
    ),
    "quarantined": Meaning(
        "unreadable, forked, or set aside",
        "goes on",
        "look; `retry` when it is safe",
        ("held.retry", "held.edit", "held.skip"),
    ),
    "skipped": Meaning("given up", "went on", "`retry --force` runs it out of order", ("held.retry",)),
}
