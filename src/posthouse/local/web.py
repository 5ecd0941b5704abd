"""Web: files of a web server, whole and bounded."""

from __future__ import annotations

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from posthouse.contracts.release import MOST_BYTES
from posthouse.errors import AuditUnavailable, ConfigurationError
from posthouse.redaction import redacted

TIMEOUT = 5.0


class Web:
    """Files of a web server: over https, or http where nobody is in between. Whoever is sent elsewhere does not go."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.hostname is None or parts.query or parts.fragment or parts.username is not None:
            raise ConfigurationError(
                f"{redacted(url)!r} is no place of contracts: write https://host/path, and no more"
            )
        self.name = url.rstrip("/")
        self._parts = parts
        self._root = parts.path.rstrip("/")

    def get(self, path: str) -> bytes | None:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            connection = HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            connection.request("GET", f"{self._root}/{path}", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise AuditUnavailable(f"{path} was answered with {answer.status} {answer.reason}")
            data = answer.read(MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise AuditUnavailable(f"{self.name}/{path}: {error}") from error
        finally:
            connection.close()
        if len(data) > MOST_BYTES:
            raise ConfigurationError(f"{path} is larger than {MOST_BYTES:,} bytes")
        return data
