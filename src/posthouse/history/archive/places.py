"""PORT: a place keeps objects under names: a folder, or a bucket of an object store.

Its methods block, and are called from threads. They raise ArchiveUnavailable where nothing is known of what they were asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple, Protocol
from urllib.parse import unquote

from posthouse.clock import new_id
from posthouse.errors import ArchiveError, ConfigurationError, did_you_mean
from posthouse.local.url import split
from posthouse.redaction import redacted

SCHEMES = ("file", "s3", "gs", "az")


class Object(NamedTuple):
    """A name, and so many bytes."""

    name: str
    size: int


class Place(Protocol):
    """Names are paths with `/`, without one at the beginning."""

    url: str
    """As it was given."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Write an object, whole and for good, unless there is one of that name: False then, whoever wrote it, this very call included
        where its first answer was lost."""
        ...

    def get(self, name: str) -> bytes | None:
        """The whole of a small one; None where there is none."""
        ...

    def size(self, name: str) -> int | None:
        """In bytes; None where there is none."""
        ...

    def open(self, name: str, size: int) -> IO[bytes]:
        """One of so many bytes, to be read from anywhere. FileNotFoundError, at the latest when it is read, where there is none."""
        ...

    def names(self, prefix: str) -> Iterator[Object]:
        """Those in a folder and in all folders below; in no order."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Take them away; what is not there is no matter."""
        ...


def open_place(url: str) -> Place:
    """The place that a URL names: `file:///var/lib/archive`, `s3://bucket/folder?region=eu-central-1`, `gs://…`, `az://…`. What stands
    behind the `?` are options of its driver; keys and tokens are found where the provider's own tools find them. Nothing is asked yet."""
    check_place(url)
    parts = split(url)
    if parts.scheme == "file":
        from posthouse.history.archive.folders import Folder  # each kind is imported when a URL asks for it

        return Folder(url, unquote(parts.path))
    try:
        from posthouse.history.archive.buckets import Bucket
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"archive={redacted(url)!r} needs the package {error.name}: pip install 'posthouse[archive]'"
        ) from error
    return Bucket(url, parts)


def check_place(url: str) -> None:
    """Raise ConfigurationError unless a URL names a place; nothing is opened."""
    parts = split(url)
    if parts.scheme not in SCHEMES:
        hint = did_you_mean(parts.scheme or url, SCHEMES)
        raise ConfigurationError(
            f"archive={redacted(url)!r}: an archive is a folder or a bucket.{hint} As in file:///var/lib/archive"
        )
    if parts.scheme == "file" and (parts.netloc not in ("", "localhost") or not parts.path.strip("/")):
        raise ConfigurationError(
            f"archive={url!r}: a folder is named by its whole path, as in file:///var/lib/archive: three slashes"
        )
    if parts.scheme != "file" and not parts.netloc:
        raise ConfigurationError(f"archive={redacted(url)!r}: name the bucket, as in {parts.scheme}://bucket/folder")


def prove(place: Place) -> None:
    """Find out whether the place keeps an object that is there when another is written under its name: all that the archive promises
    rests on it. ArchiveError where it does not."""
    name = f"probe/{new_id()}"
    try:
        place.put_new(name, b"first")  # False where the answer to its first try was lost: what counts is what is there
        if place.put_new(name, b"second") or place.get(name) != b"first":
            raise ArchiveError(
                f"{redacted(place.url)} does not keep an object that is there already: it says so and writes over it. Members of an "
                "archive would lose each other's events there: use a store that honours `If-None-Match: *` (S3, GCS, Azure, MinIO, "
                "file systems with hard links), or a release of it that does"
            )
    finally:
        place.delete([name])
