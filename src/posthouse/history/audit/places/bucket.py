"""A bucket on S3, Google Cloud Storage or Azure, through obstore. Put-if-absent is the store's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import from_url

from posthouse.errors import AuditUnavailable
from posthouse.history.once import put_once
from posthouse.redaction import redacted

FLAGS = ("allow_http",)
"""Options of the client, not of the store."""


class Bucket:
    """At `s3://bucket/prefix?region=…&endpoint=…`; credentials as the environment or the machine gives them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.name = redacted(urlunsplit(parts._replace(query="")))
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        client: dict[str, Any] = {name: options.pop(name) == "true" for name in FLAGS if name in options}
        made: Any = from_url  # its options are of the kind that the scheme says
        with self._mapped():
            self._store = made(
                urlunsplit(parts._replace(query="")), config=options or None, client_options=client or None
            )

    def get(self, path: str) -> bytes | None:
        with self._mapped():
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except (NotFoundError, FileNotFoundError):
                return None

    def put(self, path: str, data: bytes) -> bool:
        with self._mapped():
            return put_once(lambda: self._put(path, data), lambda: self.get(path)) in (None, data)

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        if expected is None:
            return self.put(path, data)
        with self._mapped():
            found = obstore.get(self._store, path)
            mark = found.meta["e_tag"]
            if bytes(found.bytes()) != expected:
                return False
            try:
                obstore.put(self._store, path, data, mode={"e_tag": mark}, use_multipart=False)
            except PreconditionError:
                return False
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        with self._mapped():
            for page in obstore.list(self._store, prefix.rstrip("/"), offset=after or None, chunk_size=1000):
                yield from sorted(found["path"] for found in page)

    def _put(self, path: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise AuditUnavailable(f"the audit log in {self.name}: {redacted(str(error))}") from error
