"""Savepoints: what was said in a transaction follows the savepoints that somebody sets and rolls back in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

Verb = Literal["set", "release", "roll back"]

MAY = re.compile(r"\b(SAVEPOINT|RELEASE|ROLLBACK|ABORT)\b", re.IGNORECASE)
ALL = re.compile(r"(?:^|;)\s*(?:ROLLBACK|ABORT)(?:\s+(?:WORK|TRANSACTION))?\s*(?:;|$)", re.IGNORECASE)
UNREAD = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$", re.DOTALL)
"""Texts and remarks inside a statement: what is written there is not said to the database."""
WORDS = re.compile(
    r"(?:^|;)\s*(?:(?P<set>SAVEPOINT)|(?P<release>RELEASE)(?:\s+SAVEPOINT)?"
    r"|ROLLBACK(?:\s+(?:WORK|TRANSACTION))?\s+TO(?:\s+SAVEPOINT)?)\s*(?P<name>\"(?:[^\"]|\"\")+\"|(?<=\s)[\w$]+)",
    re.IGNORECASE,
)


class Step(NamedTuple):
    """What a statement does with a savepoint."""

    verb: Verb
    name: str


class Sayer(Protocol):
    """Whoever has something to say when the transaction commits."""

    def mark(self) -> Any:
        """What was said so far."""
        ...

    def rewind(self, mark: Any) -> None:
        """Unsay what was said since; None: everything."""
        ...


class Savepoints:
    """The savepoints of one transaction, as far as they were heard of, and those who follow them."""

    __slots__ = ("_sayers", "_set", "late", "lost")

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        """They are heard of with the event loop's next turn, in their order: whoever follows them waits as long with what
        he says."""
        self.lost = ""
        """Why nobody knows any more what was rolled back; empty while it is known."""
        self._sayers: list[Sayer] = []
        self._set: list[tuple[str, list[Any]]] = []

    def follow(self, sayer: Sayer) -> None:
        """From now on."""
        self._sayers.append(sayer)

    def hear(self, sql: object) -> None:
        """A statement was run."""
        for step in steps_in(sql):
            self.take(step)
        if rolls_all_back(sql):
            self.hear_of_end()

    def hear_failed(self, sql: object) -> None:
        """A statement was run, or not: its answer was an error, or never came."""
        for _, name in steps_in(sql):
            self.lost = f"what became of the savepoint {name} is not known"

    def hear_of_end(self) -> None:
        """The whole transaction was rolled back, inside of the block of those who have something to say in it."""
        self.lost = "the transaction was rolled back before its block ended"

    def take(self, step: Step) -> None:
        """One step of a statement."""
        verb, name = step
        if verb == "set":
            self._set.append((name, [sayer.mark() for sayer in self._sayers]))
            return
        place = next((place for place in reversed(range(len(self._set))) if self._set[place][0] == name), None)
        if place is None:
            if verb == "roll back":
                self.lost = f"the savepoint {name} was rolled back, and nobody saw it being set"
            return
        marks = self._set[place][1]
        del self._set[place + (verb == "roll back") :]
        if verb == "roll back":
            for number, sayer in enumerate(self._sayers):
                sayer.rewind(marks[number] if number < len(marks) else None)


Detach = Callable[[], None]
"""Ends that somebody listens."""


def steps_in(sql: object) -> Iterator[Step]:
    """What a text of statements does with savepoints."""
    text = _text(sql)
    if MAY.search(text):
        for found in WORDS.finditer(UNREAD.sub(" ", text)):
            verb: Verb = "set" if found["set"] else "release" if found["release"] else "roll back"
            yield Step(verb, _name(found["name"]))


def rolls_all_back(sql: object) -> bool:
    """Whether a text of statements rolls back the whole transaction."""
    text = _text(sql)
    return bool(MAY.search(text) and ALL.search(UNREAD.sub(" ", text)))


def _text(sql: object) -> str:
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)


def _name(written: str) -> str:
    return written[1:-1].replace('""', '"') if written.startswith('"') else written.lower()
