"""The schemas of what is around every payload, by themselves: for those who read events without this library."""

from __future__ import annotations

from posthouse.errors import ConfigurationError
from posthouse.governance.envelopes import envelopes_of
from posthouse.governance.exports.source import Files, Source


def envelopes(source: Source) -> Files:
    """Raises ConfigurationError for frozen files: they do not say which service writes which, and hold them all."""
    if not source.complete:
        raise ConfigurationError("a frozen folder holds the schemas of its envelopes already, in envelopes/")
    return {path: text.decode() for path, text in envelopes_of(source.document).items()}
