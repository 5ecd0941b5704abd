"""libfaketime, for processes whose clock is to be another: the system's, or Debian's package unpacked without installing it."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.kit.servers.debian import unpacked

PATTERN = "usr/lib/*/faketime/libfaketimeMT.so.1"


@functools.cache
def faketime() -> Path:
    """The library to preload, or the tests that need it are skipped."""
    found = next(Path("/").glob(PATTERN), None) or next(unpacked("faketime", "faketime").glob(PATTERN), None)
    assert found is not None, "the package has no library"
    return found
