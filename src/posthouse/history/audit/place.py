"""PORT: a place for files that are written once: a folder, or a bucket.

`file:///srv/audit` or a path; `s3://bucket/prefix`, `gs://…`, `az://…` with the options of object_store behind the `?`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from posthouse.errors import ConfigurationError, did_you_mean

BUCKETS = ("s3", "gs", "az")


class Place(Protocol):
    """Every method raises AuditUnavailable where the place does not answer. Blocking: call it in a thread."""

    name: str
    """What to call it, without secrets."""

    def get(self, path: str) -> bytes | None:
        """What is at a path; None where nothing is."""
        ...

    def put(self, path: str, data: bytes) -> bool:
        """Put it there for good, if nothing is there, whoever else tries at the same time. True: these very bytes are there, and
        survive a crash of the machine, whoever put them. False: other bytes are. Before, it is not there, or whole."""
        ...

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """Put it in place of what is expected there; False where something else is."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """The paths below a prefix, which ends with a slash, sorted; of those only what sorts behind `after`."""
        ...


def open_place(url: str) -> Place:
    """The place that a URL or a path names; nothing is looked at by that."""
    from posthouse.history.audit.places.folder import Folder

    scheme = urlsplit(url).scheme
    if scheme in BUCKETS:
        try:
            from posthouse.history.audit.places.bucket import Bucket
        except ImportError as error:
            raise ConfigurationError("buckets need obstore: pip install 'posthouse[audit]'") from error
        return Bucket(url)
    if scheme == "file":
        if urlsplit(url).netloc:
            raise ConfigurationError(f"{url!r} names a host: write file:///srv/audit, or the path alone")
        return Folder(Path(unquote(urlsplit(url).path)))
    if "://" in url:
        raise ConfigurationError(f"no place is called {scheme!r}.{did_you_mean(scheme, ('file', *BUCKETS))}")
    return Folder(Path(url))
