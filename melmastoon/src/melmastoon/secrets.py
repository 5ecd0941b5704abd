"""Secrets: who sees what is personal. A kind that a service does not read is a placeholder to its handlers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse import Secrets

GUEST = ("identity", "contact", "requests")
"""All that is known of a guest."""

READS: Mapping[str, Sequence[str]] = {
    "reservation": GUEST,  # says it, and shows it to the front desk
    "notification": GUEST,  # writes to guests, by name
    "sync": GUEST,  # the desktops of the front desk, of their own house
    "iam": ("contact",),  # of who has an account
    "ai_orchestrator": ("contact",),  # looks for one guest who booked twice
}
"""By service. All others see none, audit included: what its digests cover is the same before an erasure and after it."""


def secrets_of(service: str, *, keys: str = "", master: str = "") -> Secrets:
    """What is personal leaves encrypted, under the key of the person. Without `keys` and `master`: as the environment says, else
    in files where the service runs."""
    return Secrets(reads=READS.get(service, ()), keys=keys, master=master)
