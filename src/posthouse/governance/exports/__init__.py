"""Exports: the catalogue in the formats of others. Pure: from one value to texts by path; the same value gives the same texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.exports.around import envelopes
from posthouse.governance.exports.asyncapi import asyncapi
from posthouse.governance.exports.eventcatalog import eventcatalog
from posthouse.governance.exports.markdown import markdown
from posthouse.governance.exports.source import Files, Source
from posthouse.governance.exports.terraform import terraform
from posthouse.governance.exports.thawing import thawed
from posthouse.governance.exports.types import cloudevents_types

__all__ = ["FORMATS", "Files", "Source", "export", "thawed"]

FORMATS: Mapping[str, Callable[[Source], Files]] = {
    "asyncapi": asyncapi,
    "envelopes": envelopes,
    "eventcatalog": eventcatalog,
    "markdown": markdown,
    "terraform": terraform,
    "types": cloudevents_types,
}


def export(source: Source, format: str) -> Files:
    """The files of one format, sorted by path. Raises ConfigurationError."""
    if format not in FORMATS:
        raise ConfigurationError(
            f"there is no export format {format!r}: {', '.join(FORMATS)}.{did_you_mean(format, FORMATS)}"
        )
    return dict(sorted(FORMATS[format](source).items()))
