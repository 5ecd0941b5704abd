"""Notifier: how a commit is noticed. A socket on this machine, hints through the server for others; both may be lost."""

from __future__ import annotations

import hashlib
import logging

from posthouse.local.naming import client_name
from posthouse.local.notifier import LocalNotifier
from posthouse.local.postgres.listening import Listener
from posthouse.local.postgres.sending import NOTIFY, NotifySender, Run

log = logging.getLogger("posthouse.wake")


class Notifier:
    """A local notifier that also reaches other machines.

    `path` names the one on this machine, `channel` the one on the server. `listen_url` leads to the server itself, round
    any pooler; without one nobody listens here. `run` runs one statement on a connection of the pool. `floor` is the
    longest pause, in seconds, that whoever waits makes between two looks of its own.
    """

    def __init__(self, path: str, channel: str, *, listen_url: str | None, run: Run, floor: float) -> None:
        self._notifier = LocalNotifier(path)
        self._floor = floor
        self._waited = False
        listen = f"listen {hashlib.blake2b(channel.encode(), digest_size=4).hexdigest()} "
        near = f"{listen}{self._notifier.neighbourhood()}"
        name = client_name(near)
        self._sender = NotifySender(run, channel, f"posthouse/%/{listen}%", f"posthouse/%/{near}")
        self._listener: Listener | None = None
        if listen_url is not None:
            self._listener = Listener(
                listen_url,
                channel,
                name,
                on_hint=self._notifier.wake,
                on_turn=self._say,
                prove=lambda: run(NOTIFY, channel),
            )

    @property
    def mode(self) -> str:
        """What wakes those who wait here, in words, as far as it is known."""
        polling = f"socket + polling every {self._floor:g} s"
        if self._listener is None:
            return f"{polling} (no LISTEN through a pooler: listen_url may lead round it)"
        return "socket + listen" if self.listens else f"{polling} (no LISTEN: {self._listener.trouble})"

    @property
    def listens(self) -> bool:
        """Whether hints of other machines are known to come through."""
        return self._listener is not None and self._listener.listening

    def notify(self) -> None:
        """Something was committed. Never blocks and never fails."""
        self._notifier.notify()
        self._sender.send()

    def wake(self) -> None:
        """Wake those who wait here, and nobody else."""
        self._notifier.wake()

    async def wait(self, seen: int, seconds: float) -> int:
        """The count of rings and hints, as soon as it differs from `seen`, at the latest after `seconds`."""
        if not self._waited:
            self._waited = True
            if self._listener is None:
                self._say()
            else:
                self._listener.start()
        return await self._notifier.wait(seen, seconds)

    async def tried(self) -> None:
        """Find out whether one can listen here."""
        if self._listener is not None:
            self._listener.start()
            await self._listener.tried()

    async def aclose(self) -> None:
        """Stop listening and telling. Idempotent."""
        if self._listener is not None:
            await self._listener.aclose()
        await self._sender.aclose()
        self._notifier.close()

    def _say(self) -> None:
        log.info("commits are noticed by %s", self.mode)
