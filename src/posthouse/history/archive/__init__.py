"""The archive: every event that travelled, in files of columns, each exactly once."""

from posthouse.history.archive.reading import Archived, ArchiveReader, Range, Reach

__all__ = ["ArchiveReader", "Archived", "Range", "Reach"]
