"""Source: what is exported, and how much of it is known."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.governance.document import Document

Files = Mapping[str, str]
"""Texts by path below the folder that they are meant for, with slashes."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`brokers` are the broker URLs of services, by the service's name, as far as they are known. `complete` is False for
    what was read from frozen files: they hold no terms of events (key, retention, residency, deprecation) and no handlers.
    """

    document: Document
    brokers: Mapping[str, str] = {}
    complete: bool = True

    @property
    def title(self) -> str:
        """The namespaces of the events, or the services where there are none."""
        namespaces = {entry.namespace for entry in self.document.events if entry.namespace}
        return ", ".join(sorted(namespaces or set(self.document.services))) or "nothing"
