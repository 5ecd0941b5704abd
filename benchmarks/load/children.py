"""Children: the processes of a load, and what they say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from benchmarks.load.producer import Ask, Sent
from benchmarks.load.shop import Place
from benchmarks.memory import MIB

READY = 60.0
END = 60.0
"""Seconds for a process to be ready, and to end."""


class Child:
    """A process. `last` is the last number that it wrote, `most` the largest."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.last = self.most = 0

    async def ready(self) -> None:
        """It says so in its first line."""
        async with asyncio.timeout(READY):
            await self.line()

    async def line(self) -> bytes:
        """The next line. RuntimeError when it has ended."""
        assert self.process.stdout is not None
        if not (line := await self.process.stdout.readline()):
            raise RuntimeError(f"{self.name} ended with code {await self.process.wait()}")
        return line

    def say(self, value: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(value) + b"\n")

    async def ask(self, ask: Ask) -> Sent:
        """For the producer: what it committed."""
        self.say(ask)
        return msgspec.json.decode(await self.line(), type=Sent)

    async def listen(self) -> None:
        """For workers: keep what they have in hand."""
        while True:
            self.last = int(await self.line())
            self.most = max(self.most, self.last)

    @property
    def memory(self) -> float:
        """MiB that it has."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


@contextlib.asynccontextmanager
async def child(name: str, module: str, *arguments: str, place: Place) -> AsyncIterator[Child]:
    """A process that was started. It ends when its stdin does."""
    command = [sys.executable, "-m", module, *arguments, msgspec.json.encode(place).decode()]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24)
    made = Child(name, process)
    try:
        yield made
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(END):
            await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
