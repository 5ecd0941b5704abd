"""Plug: a hand on the socket under a connection of libpq, while another thread may be waiting for it."""

from __future__ import annotations

import contextlib
import selectors
import socket


class Plug:
    """A second descriptor of the same socket, so that nobody can pull one that was closed and given to another."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)

    def pull(self) -> None:
        """End the conversation. Whoever waits for an answer learns at once that none will come, and nothing can be sent
        any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def stale(self) -> bool:
        """Whether something waits to be read although nothing was asked: the server's good-bye."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        """Let go."""
        self._socket.close()
