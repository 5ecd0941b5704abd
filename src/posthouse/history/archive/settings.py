"""Settings of an archive."""

from __future__ import annotations

from posthouse.options import Count, Options, Seconds

MINUTE, DAY = 60.0, 86_400.0
MIB = 2**20


class ArchiveSettings(Options):
    """How an archive is written. Durations are seconds."""

    every: Seconds = 60.0
    """An event waits so long for others, at most, before files are made: of little traffic that makes small ones, which are compacted."""
    bytes: Count = 12 * MIB
    """Files are made as soon as so many bytes are in hand, about."""
    window: Count = 10_000
    """So many frames are in hand at once, at most, received and not acknowledged."""
    lease: Seconds = 60.0
    """A member that writes nothing for so long is given up: what it had in hand is written by others."""
    look: Seconds = 2.0
    """So often it is looked whether somebody else has written what came here too."""
    compact_to: Count = 64 * MIB
    """Files of one class, topic and day are made one of about so many bytes; what is a quarter of that is large enough to be left alone."""
    compact_from: Count = 8
    """So many small files there must be of a day; of one that is over, two."""
    keeps_gone: Seconds = DAY
    """What is not live any more lies there so much longer, for whoever began to read before."""
    remembers: Seconds = 8 * DAY
    """For so long the store knows which events are archived; what comes later than that is looked for in the files."""
