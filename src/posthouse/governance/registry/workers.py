"""WorkerJudge: schemas are read and compared in processes of their own, which are ended when they take too long."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode
from posthouse.governance.registry import refusal
from posthouse.governance.registry.comparing import Known
from posthouse.governance.registry.format import Import, Reading
from posthouse.governance.registry.worker import LENGTH, Answer, Compare, Read, Task, framed

COMMAND = (sys.executable, "-m", "posthouse.governance.registry.worker")
AT_ONCE = 2
PATIENCE = 15.0


class WorkerJudge:
    """`at_once` processes at most, started when they are needed. A task has `patience` seconds, without its wait for a turn."""

    def __init__(self, *, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._turns = asyncio.Semaphore(at_once)
        self._idle: list[Process] = []
        self._busy: set[Process] = set()
        self._ending = False

    async def read(self, type: str, text: str, imports: Sequence[Import]) -> Reading:
        answer = await self._asked(Read(type, text, tuple(imports)))
        if answer.reading is None:
            raise SchemaError(answer.refused or "the schema was not understood")
        return answer.reading

    async def complaints(self, past: Sequence[Known], new: Known, level: Mode) -> list[str]:
        answer = await self._asked(Compare(tuple(past), new, level))
        return [f"the schemas cannot be compared: {answer.refused}"] if answer.refused else list(answer.complaints)

    async def aclose(self) -> None:
        """What is being looked at is given up too: whoever waits for it is told to ask again."""
        self._ending = True
        for process in (*self._idle, *self._busy):
            await _ended(process)
        self._idle.clear()

    async def _asked(self, task: Task) -> Answer:
        async with self._turns:
            process = await self._process()
            self._busy.add(process)
            try:
                if self._ending:
                    raise ConnectionAbortedError
                async with asyncio.timeout(self._patience):
                    answer = await _answer(process, task)
            except TimeoutError:
                await _ended(process)
                return Answer(refused=f"that took longer than {self._patience:g} s and was given up")
            except (asyncio.IncompleteReadError, ConnectionError):
                await _ended(process)
                if self._ending:
                    raise refusal.ending() from None
                return Answer(refused="the process that looked at it died of it")
            except BaseException:
                await asyncio.shield(_ended(process))
                raise
            finally:
                self._busy.discard(process)
            self._idle.append(process)
            return answer

    async def _process(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE)


async def _answer(process: Process, task: Task) -> Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(framed(task))
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=Answer)


async def _ended(process: Process) -> None:
    """Killed, waited for, and its pipes closed."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
