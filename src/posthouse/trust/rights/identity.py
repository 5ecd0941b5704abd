"""Identity: how somebody who asks or approves is known. A console knows who signed in; a command line believes whoever runs it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

from posthouse.operators import login_name, operator_name, plain

CONSOLE = "console"
_signed_in: contextvars.ContextVar[bool] = contextvars.ContextVar("posthouse_signed_in", default=False)


class Person(NamedTuple):
    """A name, and how it was known: `console`, or `login@host`."""

    name: str
    known_as: str

    @property
    def signed_in(self) -> bool:
        return self.known_as.startswith(f"{CONSOLE}:")

    def is_like(self, name: str, known_as: str) -> bool:
        """Whether somebody is, as far as anybody can tell, the same. What a command line says is compared by the word before the @:
        `ada@laptop` may well be `ada@example.com`, and one login on two machines is one person."""
        other = Person(name, known_as)
        if self.known_as == known_as or folded(self.name) == folded(name):
            return True
        if not (self.signed_in or other.signed_in) and _word(self.known_as) == _word(known_as):
            return True  # on another machine, whose name he may give himself
        return not (self.signed_in and other.signed_in) and _word(self.name) == _word(name)


@contextlib.contextmanager
def signed_in(known: bool) -> Iterator[None]:
    """Whether what is done inside is done for somebody who signed in: a console says so, around an act and around a job."""
    before = _signed_in.set(known)
    try:
        yield
    finally:
        _signed_in.reset(before)


def person_of(by: str) -> Person:
    """Whoever acts as `by`, empty for whoever runs this process."""
    name = plain(by) or operator_name()
    return Person(name, f"{CONSOLE}:{folded(name)}" if _signed_in.get() else login_name())


def folded(name: str) -> str:
    """As names are compared."""
    return plain(name).casefold()


def _word(name: str) -> str:
    return folded(name).partition("@")[0]
