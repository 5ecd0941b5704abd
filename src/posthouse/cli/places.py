"""Places: where a service keeps its facts and through what they travel, in words fit for a log."""

from __future__ import annotations

from urllib.parse import urlsplit


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":…@")).geturl()
