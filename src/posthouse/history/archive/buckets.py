"""A bucket of an object store as a place: S3 and what speaks its language, Google Cloud Storage, Azure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import IO, Any
from urllib.parse import SplitResult, parse_qsl

import obstore
from obstore import exceptions
from obstore.store import from_url

from posthouse.errors import ArchiveUnavailable, ConfigurationError
from posthouse.history.archive.places import Object
from posthouse.history.once import put_once
from posthouse.redaction import redacted

PATIENCE = timedelta(seconds=30)
"""For one answer."""
TRIES = 3

FOREIGN = (exceptions.BaseError, OSError)
ABSENT = (exceptions.NotFoundError, FileNotFoundError)


class Bucket:
    """Whatever the URL says behind its `?` is the driver's: `region`, `endpoint`, `virtual_hosted_style_request` and the like."""

    def __init__(self, url: str, parts: SplitResult) -> None:
        self.url = url
        options: Any = dict(parse_qsl(parts.query, keep_blank_values=True))
        plain = str(options.get("endpoint", "")).startswith("http://")
        try:
            self._store: Any = from_url(
                f"{parts.scheme}://{parts.netloc}{parts.path}",
                config=options,
                client_options={"timeout": PATIENCE, "connect_timeout": timedelta(seconds=5), "allow_http": plain},
                retry_config={"max_retries": TRIES, "retry_timeout": PATIENCE},
            )
        except FOREIGN as error:
            raise ConfigurationError(f"archive={redacted(url)!r}: {_words(error)}") from error

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            return put_once(lambda: self._put(name, data), lambda: self.size(name)) is None
        except FOREIGN as error:
            raise self._away(name, error) from error

    def get(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except ABSENT:
            return None
        except FOREIGN as error:
            raise self._away(name, error) from error

    def size(self, name: str) -> int | None:
        try:
            return int(obstore.head(self._store, name)["size"])
        except ABSENT:
            return None
        except FOREIGN as error:
            raise self._away(name, error) from error

    def open(self, name: str, size: int) -> IO[bytes]:
        return io.BufferedReader(_Ranges(self, name, size), 64 * 1024)

    def part(self, name: str, start: int, end: int) -> bytes:
        """From a byte to another, which is not part of it."""
        try:
            return bytes(obstore.get_range(self._store, name, start=start, end=end))
        except ABSENT as error:
            raise FileNotFoundError(name) from error
        except FOREIGN as error:
            raise self._away(name, error) from error

    def names(self, prefix: str) -> Iterator[Object]:
        try:
            for page in obstore.list(self._store, prefix=prefix):
                for found in page:
                    yield Object(found["path"], found["size"])
        except FOREIGN as error:
            raise self._away(prefix, error) from error

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                obstore.delete(self._store, name)
            except ABSENT:
                continue
            except FOREIGN as error:
                raise self._away(name, error) from error

    def _put(self, name: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        return True

    def _away(self, name: str, error: Exception) -> ArchiveUnavailable:
        return ArchiveUnavailable(f"{redacted(self.url.partition('?')[0])}, {name}: {_words(error)}")


class _Ranges(io.RawIOBase):
    """An object, read in parts."""

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket, self._name, self._size = bucket, name, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        found = self._bucket.part(self._name, self._at, end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _words(error: Exception) -> str:
    """The first line: what follows is for who made the driver."""
    return redacted((str(error).strip() or type(error).__name__).splitlines()[0][:300])
