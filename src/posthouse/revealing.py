"""Revealing: the plain value of what travels encrypted, for a person who asks for it on purpose. Who asked, why, and whose it is are in
the operators' log before anybody sees it; the value is nowhere."""

from __future__ import annotations

import msgspec

from posthouse.app import App
from posthouse.contracts.boxes import WITHHELD, Revealed, boxes_at
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.store import HeldEvent
from posthouse.store.actions import Action, Changes

UNMASK = "held unmask"
"""The verb of a look from a command line."""
MOST_NAMED = 200
"""So many persons are named in one entry of the log; of more it is told how many."""


async def reveal(app: App, event: Event[bytes]) -> Revealed:
    """Everything in an event. Note it with `noted` before it is shown. Raises SecretsUnavailable where the keys cannot be had,
    ConfigurationError where this process has none."""
    if not boxes_at(event.data):
        return Revealed(event.data)
    if app.opened.vault is None:
        raise ConfigurationError(
            f"{app.opened.name}: parts of this event are encrypted, and this process has no keys: say POSTHOUSE_SECRETS_KEYS here, or "
            "give the App secrets=Secrets(…)"
        )
    return await app.opened.vault.reveal(app.store, event)


def noted(action: Action, revealed: Revealed) -> Action:
    """The entry of the operators' log with whose fields are shown, by their names."""
    some = list(revealed.shown.items())
    changed: Changes = {f"shown of {of}": (WITHHELD, ", ".join(paths)) for of, paths in some[:MOST_NAMED]}
    if len(some) > MOST_NAMED:
        changed = {**changed, "shown of others": (None, f"{len(some) - MOST_NAMED:,} more")}
    return msgspec.structs.replace(action, changed=changed)


def looking_at(held: HeldEvent, verb: str, by: str = "", why: str = "") -> Action:
    """The entry of a look at a held event."""
    entry = held.entry
    return Action(
        verb=verb,
        by=by,
        why=why,
        target=f"held event {held.id}",
        consumer=held.consumer,
        topic=entry.topic,
        tenant=entry.tenant,
        key=entry.key or "",
        event_id=entry.event_id,
    )
