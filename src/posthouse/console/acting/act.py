"""Act: one thing that may be pressed. Whoever presses sees first what will happen, and says why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Role, Who
from posthouse.console.asking import Refusal
from posthouse.errors import ConfigurationError
from posthouse.service import Service
from posthouse.store import GrantVerb

P = TypeVar("P", bound=msgspec.Struct)
P_co = TypeVar("P_co", covariant=True)

OURS = frozenset(("service", "why", "dry", "seen", "press"))
"""What every request may say, besides the parameters of its act."""

Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,18}\Z")]
"""A number that a browser could not hold, as text."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Change(msgspec.Struct, frozen=True):
    """A field that an edit changes; each value as JSON, None where there is none."""

    field: str
    before: str | None
    after: str | None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What will happen, in words and numbers, and the state of the thing that was looked at.

    `title` is what the button says, empty where it is that of the act; `tenant` is whose the thing is, empty where it is nobody's; `turn` that of its row, where the act itself is refused by it;
    `seen` whatever else would make it another thing when it changes.
    """

    sentence: str
    title: str = ""
    danger: str = ""
    lines: Sequence[str] = ()
    counts: Mapping[str, int | str] = {}
    changes: Sequence[Change] = ()
    tenant: str = ""
    turn: int | None = None
    seen: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `job`: it goes on as this one. `again`: it was done before, by this very press."""

    sentence: str
    job: str | None = None
    again: bool = False


class Call(msgspec.Struct, Generic[P_co], frozen=True, kw_only=True):
    """One press: on what, by whom, why, and under which id in the operators' log (`press`), and `through` what; empty: a command line."""

    app: App
    service: Service
    who: Who
    parameters: P_co
    why: str = ""
    press: str = ""
    through: str = "console"

    @property
    def by(self) -> str:
        """As the operators' log has it."""
        return f"{self.who.name} ({self.through})" if self.through else self.who.name


class Act(msgspec.Struct, Generic[P], frozen=True, kw_only=True):
    """`look` finds the thing, refuses who may not see its tenant, and says what will happen; `do` does it. `all_tenants`: it is about
    more than one tenant, so that nobody presses it who sees only some. `payloads`: only for who may see these. `bulk`: it becomes
    a job. `grant`: what it needs a grant to, where the rights ask for one."""

    name: str
    title: str
    role: Role
    parameters: type[P]
    look: Callable[[Call[P]], Awaitable[Look]]
    do: Callable[[Call[P], Look], Awaitable[Outcome]]
    all_tenants: bool = False
    payloads: bool = False
    bulk: bool = False
    grant: GrantVerb | None = None

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self.parameters):
            if field.encode_name in OURS:  # it would be taken for the press's own, and never arrive
                raise ConfigurationError(f"{self.name}: the parameter {field.encode_name!r} is what every press says")


AnyAct = Act[Any]


def refuse_rights(act: AnyAct, who: Who) -> None:
    """Raise Refusal 403 for who may not press it."""
    if not who.may(act.role):
        raise Refusal(403, f"{act.title} is for the role {act.role}.", "Ask whoever gives roles.")
    if act.all_tenants and who.tenants is not None:
        raise Refusal(403, f"{act.title} touches all tenants, and you see only some.", "Ask somebody who sees all.")
    if act.payloads and not who.payloads:
        raise Refusal(403, f"{act.title} is for who may see payloads.", "Ask whoever gives rights.")
