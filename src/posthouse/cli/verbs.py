"""Verbs: imported when they are called. What `posthouse --help` says of each is known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from posthouse import plugins
from posthouse.cli.group import Group
from posthouse.errors import ConfigurationError
from posthouse.local.naming import name_verb

VERBS: Mapping[str, str] = {
    "quickstart": "Two services, three tenants, one poison event, one killed worker: and nothing is lost.",
    "new": "Write a small service project that runs at once.",
    "run": "Run relay, consumers, timers and the archive of one or several services.",
    "status": "Show whether everything that was committed is applied, in flight or held, and who runs.",
    "console": "Open the console: what flows, what is stuck, what it means, what to press.",
    "watch": "Serve the figures of the stores of some services, and run nothing.",
    "doctor": "Look at the store and the broker of each service: settings, roles, tables, open transactions, and the "
    "promise that results. Changes nothing.",
    "held": "Look at events that could not be applied, and deal with them.",
    "jobs": "Jobs: acts over many things. Begin one, see how far it is, run it.",
    "actions": "List what operators did, newest first: who, when, why, with what, and what it changed.",
    "outbox": "Look at events that the broker refused and try them again; send again what it lost.",
    "saga": "Look at sagas, and help those that cannot go on by themselves.",
    "stream": "Streams of aggregates: look at one, export, archive, restore or delete it.",
    "subject": "Persons whose fields are secret: erase one, and prove it.",
    "schedule": "Look at what services do again and again; pause it, resume it, run it now.",
    "projection": "Read models: how fresh they are, and how they are made anew.",
    "timers": "List pending timers, soonest first, or cancel one.",
    "topics": "Show the topics of one or several services, with their events and consumers.",
    "catalog": "Show what services declare, freeze it into files, compare the two, bundle and export it.",
    "schema": "Compare schemas, and learn whom a change would break.",
    "contract": "Check what producers send against what consumers expect.",
    "check": "Look for anti-patterns in what services declare and in their code. Nothing is opened or changed.",
    "flow": "Look at the flows that services declare.",
    "trace": "Print the causal tree of everything that one request caused, and what consumers did with it.",
    "topology": "Compare brokers with what services declare, and make them fit.",
    "export": "Write alert rules for Prometheus, dashboards for Grafana, the runbooks that they lead to, and rights for brokers.",
    "retention": "How long what is kept: what lies where, how old it is, what would go, and let it go.",
    "seek": "Let a consumer read on from another place of its topics; members that run pick it up within seconds.",
    "replay": "Give one consumer events once more, from the log or an outbox: nobody else sees anything.",
    "grant": "Let somebody replay or edit events for a while, because another one says so.",
    "db": "Make and upgrade the tables of a store.",
    "keys": "Keys of signed facts: make, list, retire, revoke and check them.",
    "archive": "The archive of every event: how far it is, whether it is sound, what is in it, and let go of what is too old.",
    "audit": "The audit log: verify it, prove an event, sign a checkpoint.",
    "registry": "A schema registry over HTTP, for Confluent's clients and serializers.",
}
"""In the order in which they are listed, with the beginning of their help. `posthouse.cli.NAME` holds a function of that name,
or `app` where the verb has verbs of its own."""


class Verb(TyperCommand):
    """A verb that is not imported yet. Whoever calls it, or asks for its help, gets the real one."""

    def __init__(self, name: str, help: str, load: Callable[[], object]) -> None:
        super().__init__(name=name, help=help)
        self._load = load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        context = _command(self.name, self._load()).make_context(info_name, args, parent=parent, **extra)
        if self.name != "run":  # that one connects for its services
            context.call_on_close(name_verb(self.name))
        return context


class Verbs(Group):
    """Our own verbs, and those that other distributions plug in: these are looked for when a name is not ours."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: Verb(name, help, partial(_own, name)) for name, help in VERBS.items()})
        self._plugged_in = False

    def list_commands(self, ctx: Any) -> list[str]:
        self._plug_in()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._plug_in()
        return super().get_command(ctx, cmd_name)

    def _plug_in(self) -> None:
        if self._plugged_in:
            return
        self._plugged_in = True
        for name, entry in sorted(plugins.installed(plugins.VERBS).items()):
            summary = (entry.dist.metadata["Summary"] if entry.dist else "") or f"A verb of {entry.module}."
            self.commands.setdefault(name, Verb(name, summary, partial(plugins.load, entry)))


def _own(name: str) -> object:
    module = import_module(f"posthouse.cli.{name}")
    return getattr(module, "app", None) or getattr(module, name)


def _command(name: str, verb: object) -> Any:
    if isinstance(verb, typer.Typer):
        return get_group(verb)
    if not callable(verb):
        raise ConfigurationError(f"the verb {name!r} is a {type(verb).__name__}, neither a function nor a typer.Typer")
    alone = typer.Typer(add_completion=False)
    alone.command(name)(verb)
    return get_command(alone)
