"""Pooler: finds out whether somebody stands between us and the server, and whether sessions are ours to keep."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import asyncpg

from posthouse.checks import Check, judged
from posthouse.local.naming import given_name

Pooler = Literal["none", "session", "transaction"]

PATIENCE = 2.0
"""Seconds to wait for a connection that somebody else may hold."""

# The server process that answers.
PROCESS = "SELECT pg_backend_pid()"


async def probed(url: str, *, connecting: float, name: str) -> Pooler:
    """What stands before the server of `url`. One or two connections are opened and closed for it; asyncpg's own errors.

    A pooler hands out process numbers of its own. One that changes the server connection between transactions must give
    the first client another process while the second one holds what the first had.
    """
    async with _connected(url, connecting, name) as first:
        async with first.transaction():
            before = await first.fetchval(PROCESS)
        if before == first.get_server_pid():
            return "none"
        async with _connected(url, connecting, name) as second, second.transaction():
            await second.fetchval(PROCESS)
            try:
                async with asyncio.timeout(PATIENCE), first.transaction():
                    after = await first.fetchval(PROCESS)
            except TimeoutError:
                return "transaction"  # the one connection that there is belongs to the second client now
        return "session" if after == before else "transaction"


def pooler_check(found: Pooler, declared: Pooler) -> Check:
    """Whether what was found is what the URL says."""
    words = {
        "none": "none: connections go straight to the server",
        "session": "one that keeps sessions",
        "transaction": "one that changes the server connection between transactions",
    }
    fix = "add pooler=transaction to the URL, or what is kept in a session is lost, and statements fail"
    return judged(
        "pooler",
        f"{words[found]}; the URL says {declared}",
        wrong=found == "transaction" != declared,
        as_="fail",
        fix=fix,
    )


@contextlib.asynccontextmanager
async def _connected(url: str, connecting: float, name: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(
        url,
        timeout=connecting,
        statement_cache_size=0,
        server_settings={"application_name": given_name(url) or name},
    )
    try:
        yield connection
    finally:
        connection.terminate()
