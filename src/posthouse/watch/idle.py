"""Idle: the health of Apps of which no loop runs in this process, as in a web application that only publishes. Nobody but the page
would notice that their stores are away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence

from posthouse.app import App
from posthouse.errors import PosthouseError
from posthouse.health import Health, PartHealth
from posthouse.local.loops import close_with_loop
from posthouse.redaction import words_of
from posthouse.watch.asking import Asked, Unanswered

WITHIN = 2.0
"""Seconds that a store may take to answer: whoever asks for readiness waits for few more."""


class Idle:
    """Asks the stores of those Apps that run nothing, at most once a second, when somebody wants to know."""

    def __init__(self, apps: Sequence[App], there: asyncio.AbstractEventLoop) -> None:
        self._apps = apps
        self._asked = Asked(self._ask, there, within=WITHIN + 1)
        self._stores: dict[str, PartHealth] = {}

    async def look(self) -> None:
        """Ask them, unless that was done just now."""
        if any(app.opened.idle for app in self._apps):
            with contextlib.suppress(Unanswered):  # what was found last stands
                await self._asked.latest()

    def health(self) -> Mapping[str, Health]:
        """Of all Apps, by name."""
        return {app.opened.name: self._of(app) for app in self._apps}

    def _of(self, app: App) -> Health:
        health, store = app.health(), self._stores.get(app.opened.name)
        if store is None or not app.opened.idle:
            return health
        parts = [store if part.name == "store" else part for part in health.parts]
        return Health(live=health.live, ready=store.state == "ready", parts=parts, problem=health.problem)

    async def _ask(self) -> None:
        await asyncio.gather(*(self._ask_one(app) for app in self._apps if app.opened.idle))

    async def _ask_one(self, app: App) -> None:
        opened, reason = app.opened, ""
        try:
            async with asyncio.timeout(WITHIN):
                if not opened.ports.store.embedded:
                    close_with_loop(opened)
                await opened.ports.store.present()
        except TimeoutError:
            reason = f"no answer within {WITHIN:g} s"
        except (PosthouseError, OSError) as error:
            reason = words_of(error)
        self._stores[opened.name] = _part(reason, self._stores.get(opened.name))


def _part(reason: str, before: PartHealth | None) -> PartHealth:
    if not reason:
        return PartHealth(name="store", state="ready")
    since = time.time() if before is None or before.since is None else before.since
    return PartHealth(name="store", state="waiting", since=since, reason=reason)
