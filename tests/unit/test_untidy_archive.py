"""An archive that is broken keeps nothing else from being tidied."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from posthouse.errors import ArchiveDamaged
from posthouse.runtime import Runtime


class Broken:
    async def tidy(self) -> None:
        raise ArchiveDamaged("entry 3 is no entry")


async def test_an_archive_that_cannot_be_tidied_is_said_once_and_no_end_of_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime: Any = SimpleNamespace(archive=Broken(), untidy=set(), name="shop")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await Runtime._tidy_archive(runtime)
    assert [record.getMessage() for record in caplog.records] == [
        "shop: the archive is not tidied: entry 3 is no entry"
    ]
