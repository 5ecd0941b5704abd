"""Savepoints: what was said in a transaction follows the savepoints that somebody sets and rolls back in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

from posthouse.store.wording import is_ambiguous, statements_in, text_of

Verb = Literal["set", "release", "roll back"]
Fate = Literal["committed", "rolled back", "written", "refused", "unknown"]
"""What became of a fact that was said. written: into a transaction that is somebody else's to commit. refused: nothing was said.
unknown: the store did not tell whether it committed."""

MAY = re.compile(r"\b(SAVEPOINT|RELEASE|ROLLBACK|ABORT|COMMIT|PREPARE\s+TRANSACTION)\b|\A\s*END\b", re.IGNORECASE)
"""END also ends the body of a routine or a trigger: it counts where nothing is before it."""
ALL = re.compile(
    r"(?:ROLLBACK|ABORT|COMMIT|END)(?:\s+(?:WORK|TRANSACTION))?(?:\s+AND\s+(?:NO\s+)?CHAIN)?|PREPARE\s+TRANSACTION\b.*",
    re.IGNORECASE | re.DOTALL,
)
END = re.compile(r"END\b", re.IGNORECASE)
COMMITS = re.compile(r"COMMIT\b|END\b", re.IGNORECASE)
ONE = re.compile(
    r"(?:(?P<set>SAVEPOINT)|(?P<release>RELEASE)(?:\s+SAVEPOINT\b)?"
    r"|ROLLBACK(?:\s+(?:WORK|TRANSACTION))?\s+TO(?:\s+SAVEPOINT\b)?)"
    r"(?:\s*(?P<quoted>\"(?:[^\"]|\"\")+\"|'(?:[^']|'')+'|`(?:[^`]|``)+`|\[[^]]+\])|\s+(?P<plain>[^\W\d][\w$]*))",
    re.IGNORECASE,
)
"""The whole of a statement. SQLite has four ways to quote a name."""


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

    def ended(self, fate: Fate, error: BaseException | None) -> None:
        """The transaction is over, and this became of what was said in it; told only where somebody traces."""
        ...


class Savepoints:
    """The savepoints of one transaction, as far as they were heard of, and those who follow them."""

    __slots__ = ("_begun", "_sayers", "_set", "late", "lost")

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        """They are heard of with the event loop's next turn, in their order: whoever follows them waits as long with what
        he says."""
        self.lost = ""
        """Why nobody knows any more what was rolled back; empty while it is known."""
        self._begun = False
        self._sayers: list[Sayer] = []
        self._set: list[tuple[str, list[Any]]] = []

    def follow(self, sayer: Sayer) -> None:
        """From now on."""
        self._sayers.append(sayer)

    def end(self, fate: Fate, error: BaseException | None) -> None:
        """The transaction is over: tell those who had something to say."""
        for sayer in self._sayers:
            sayer.ended(fate, error)

    def hear(self, sql: object) -> None:
        """A statement was run."""
        for statement in _of_savepoints(sql):
            step = _step(statement)
            if step is not None:
                self.take(step)
            elif ALL.fullmatch(statement):
                self.hear_of_end(committed=COMMITS.match(statement) is not None)
            else:
                self.lost = f"what {statement[:60]!r} does with savepoints is not understood"

    def hear_failed(self, sql: object, error: BaseException | None = None) -> None:
        """A statement was run, or not: its answer was an error, or never came."""
        for statement in _of_savepoints(sql):
            self.lost = f"what became of {statement[:60]!r} is not known"

    def hear_of_end(self, *, committed: bool = False) -> None:
        """The whole transaction was rolled back or committed, inside of the block of those who have something to say in it."""
        self.lost = "the transaction was ended before its block was"

    def hear_of_no_commit(self) -> None:
        """The commit that was told of before it was tried has failed."""

    def see(self, in_transaction: bool) -> None:
        """Whether the connection is in a transaction now: some errors end one without a statement that says so."""
        if self._begun and not in_transaction:
            self.hear_of_end()
        self._begun = in_transaction

    def take(self, step: Step) -> None:
        """One step of a statement."""
        verb, name = step
        if verb == "set":
            self._set.append((name, [sayer.mark() for sayer in self._sayers]))
            return
        place = self._latest(name)
        if place is not None and self._set[place][0] != name:
            self.lost = f"the savepoints {name} and {self._set[place][0]} are one for SQLite and two for PostgreSQL"
            return
        if place is None:
            if verb == "roll back":
                self.lost = f"the savepoint {name} was rolled back, and nobody saw it being set"
            return
        marks = self._set[place][1]
        del self._set[place + (verb == "roll back") :]
        if verb == "roll back":
            for number, sayer in enumerate(self._sayers):
                sayer.rewind(marks[number] if number < len(marks) else None)

    def _latest(self, name: str) -> int | None:
        """The place of the latest one of that name, however it was written."""
        names = [known.lower() for known, _ in self._set]
        return next((place for place in reversed(range(len(names))) if names[place] == name.lower()), None)


Detach = Callable[[], None]
"""Ends that somebody listens."""


def steps_in(sql: object) -> Iterator[Step]:
    """What a text of statements does with savepoints, as far as it is understood."""
    for statement in _of_savepoints(sql):
        step = _step(statement)
        if step is not None:
            yield step


def _of_savepoints(sql: object) -> Iterator[str]:
    """The statements of a text that set, release or roll back, also those that nobody here understands."""
    text = text_of(sql)
    if not MAY.search(text):
        return
    if is_ambiguous(text):
        yield text  # it begins with a remark or with whatever: no step
        return
    for number, statement in enumerate(statements_in(text)):
        if MAY.match(statement) and (number == 0 or not END.match(statement)):
            yield statement


def _step(statement: str) -> Step | None:
    found = ONE.fullmatch(statement)
    if found is None:
        return None
    verb: Verb = "set" if found["set"] else "release" if found["release"] else "roll back"
    return Step(verb, _unquoted(found["quoted"]) if found["quoted"] else found["plain"].lower())


def _unquoted(name: str) -> str:
    quote = name[-1]
    return name[1:-1].replace(quote * 2, quote)
