"""Rights: which service may publish, read and replay which topic. Pure: questions with a sentence for an answer."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

from posthouse.errors import ConfigurationError
from posthouse.options import Options
from posthouse.receiving import dead_letter_topic

VARIABLE = "POSTHOUSE_RIGHTS"
"""Names a TOML file that says the same, for processes and commands whose code does not."""
DEAD = dead_letter_topic("")

Lists = Mapping[str, Collection[str]]


class Party(NamedTuple):
    """A service, as rights name it: `orders`, or `shop.orders` where several namespaces have one."""

    name: str
    namespace: str | None = None

    @property
    def full(self) -> str:
        """As its topics begin."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    def owns(self, topic: str) -> bool:
        """Whether a topic, or one of dead letters, is of this service's facts: they begin with its name."""
        return topic == self.full or topic.startswith(f"{self.full}.")

    def is_in(self, listed: Collection[str]) -> bool:
        """Whether one of these patterns means it."""
        return any(fnmatchcase(self.name, one) or fnmatchcase(self.full, one) for one in listed)


class Rights(Options):
    """Who may do what. In a pattern `*` stands for anything; of several patterns the first that fits counts.

    Nothing has to be listed: the owner of a topic publishes to it and nobody else, whoever declares a handler reads it, and
    whoever reads it may be sent back in it."""

    publish: Lists = dataclasses.field(default_factory=dict)
    """Topics, and the accounts that publish to them beside the owner: those of other makers' tools, for the exports and for
    `doctor`. In this library a service says its own facts alone."""
    read: Lists = dataclasses.field(default_factory=dict)
    """Topics, and the services that alone may read them, beside the owner. Others: whoever declares it."""
    replay: Lists = dataclasses.field(default_factory=dict)
    """Topics, and the services that alone may be sent back in them, build read models from them anew, or send them again.
    `[]`: nobody. Others: whoever reads, and for sending again the owner."""
    tenants: Lists = dataclasses.field(default_factory=dict)
    """Services, and the tenants that these may publish for. Others: all."""
    grants: bool = False
    """Whether a person needs a grant to replay or to edit: see docs/grants.md."""
    approvers: Collection[str] = ("*",)
    """People who may approve a grant that somebody else asked for, by name."""
    signed_in: bool = False
    """Whether only somebody who signed in at the console may ask and approve: a command line believes whoever runs it."""

    def of(self, which: Literal["publish", "read", "replay"], topic: str) -> Collection[str] | None:
        """Whom a list names for a topic; None where no pattern of it fits."""
        return _first(getattr(self, which), topic)

    def publish_problem(self, party: Party, topic: str, *, reads: bool = False) -> str:
        """Why a service may not publish to a topic; empty where it may. `reads`: it reads the topic that these dead letters are of."""
        if party.owns(topic) or (reads and topic.endswith(DEAD)) or party.is_in(_first(self.publish, topic) or ()):
            return ""
        return f"{topic} is not {party.name}'s to publish to: a service says its own facts alone"

    def read_problem(self, party: Party, topic: str) -> str:
        """Why a service may not read a topic; empty where it may."""
        listed = _first(self.read, topic)
        if listed is None or party.owns(topic) or party.is_in(listed):
            return ""
        return f"{party.name} may not read {topic}: it is kept for {_names(listed)}; Rights(read={{…}}) says who may"

    def replay_problem(self, party: Party, topic: str) -> str:
        """Why a service may not be sent back in a topic, or send it again; empty where it may."""
        listed = _first(self.replay, topic)
        if listed is None or party.is_in(listed):
            return self.read_problem(party, topic)
        return f"{party.name} may not replay {topic}: that is for {_names(listed)}; Rights(replay={{…}}) says who may"

    def tenant_problem(self, party: Party, tenant: str) -> str:
        """Why a service may not publish for a tenant; empty where it may."""
        listed = next((tenants for service, tenants in self.tenants.items() if party.is_in([service])), None)
        if listed is None or any(fnmatchcase(tenant, pattern) for pattern in listed):
            return ""
        return f"{party.name} may not publish for the tenant {tenant!r}: Rights(tenants={{…}}) says for whom it may"


def rights_here() -> Rights | None:
    """What the environment says; None where it says nothing. ConfigurationError for a file that does not fit."""
    named = os.environ.get(VARIABLE, "").strip()
    if not named:
        return None
    try:
        said = tomllib.loads(Path(named).read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{VARIABLE}: {named} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{VARIABLE}: {named} is no TOML: {error}") from error
    try:
        return Rights(**said)
    except ConfigurationError as error:
        raise ConfigurationError(*(f"{named}: {problem}" for problem in error.problems)) from error


def _first(lists: Lists, topic: str) -> Collection[str] | None:
    """The list of the first pattern that fits a topic; dead letters are kept like what they are of."""
    plain = topic.removesuffix(DEAD)
    return next((listed for pattern, listed in lists.items() if fnmatchcase(plain, pattern)), None)


def _names(listed: Collection[str]) -> str:
    return ", ".join(sorted(listed)) or "nobody"
