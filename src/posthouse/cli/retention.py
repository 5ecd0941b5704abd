"""`posthouse retention status|plan|apply`: how long what is kept, what lies where, and what would go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import typer

from posthouse.app import App, apps_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import Cell, confirm, counted, print_json, print_table, say, span
from posthouse.cli.target import Targets, load_all
from posthouse.contracts import Retention
from posthouse.contracts.retention import CLASSES, RetentionClasses
from posthouse.errors import BrokerError
from posthouse.opened.retaining import sweep_of
from posthouse.service import Service
from posthouse.store import Action
from posthouse.store.retention import MOST_COUNTED, Lying
from posthouse.watch.retention import TopicAge, days, topic_ages

DIFFERENT = 2

app = typer.Typer(
    no_args_is_help=True, help="How long what is kept: what lies where, how old it is, what would go, and let it go."
)


class ClassLine(msgspec.Struct, frozen=True, kw_only=True):
    """One class: how long it is kept, in seconds, and the events and topics of these services that are of it."""

    name: Retention
    log: float
    archive: float
    events: Sequence[str]
    topics: Sequence[str]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One App. `declared`: somebody has said what the classes mean; else these are the ones that there are. `unknown`: why the
    broker could not be asked."""

    services: Sequence[str]
    declared: bool
    classes: Sequence[ClassLine]
    topics: Sequence[TopicAge]
    unknown: str
    rows: Sequence[Lying]

    @property
    def due(self) -> int:
        return sum(lying.due for lying in self.rows)

    @property
    def wrong(self) -> Sequence[TopicAge]:
        return [topic for topic in self.topics if self.declared and topic.judgement]


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of an App left."""

    services: Sequence[str]
    inbox: int
    held: int


@app.command()
def status(targets: Targets, as_json: AsJson = False) -> None:
    """Show what each class keeps, how long topics keep their frames, and what lies in the store. Changes nothing."""
    found = asyncio.run(_looked(load_all(targets)))
    _show(found, as_json)


@app.command()
def plan(targets: Targets, as_json: AsJson = False) -> None:
    """Show the same, and end with code 2 when rows are due or a topic contradicts its class. Changes nothing."""
    found = asyncio.run(_looked(load_all(targets)))
    _show(found, as_json)
    if any(one.due or one.wrong for one in found):
        raise typer.Exit(DIFFERENT)


@app.command()
def apply(targets: Targets, by: By = "", why: Why = "", yes: Yes = False, as_json: AsJson = False) -> None:
    """Show what is due, ask, and let it go, in batches. Workers do the same by themselves, every ten seconds.

    Where rows are to be archived first, what cannot be written stays. Broken off in the middle, begin again. How long a topic keeps
    its frames is set by `posthouse topology apply`.
    """
    gone = asyncio.run(
        _applied(load_all(targets), Action(verb="retention apply", by=by, why=why), ask=not yes, quiet=as_json)
    )
    if as_json:
        print_json(gone)
        return
    for one in gone:
        names = ", ".join(one.services)
        say(f"{names}: {counted(one.inbox, 'row')} of the inbox and {counted(one.held, 'held event')} deleted", "green")


async def _looked(services: Sequence[Service]) -> list[Standing]:
    async with opened(services):
        return [await _standing(one) for one in apps_of(services)]


async def _standing(one: App) -> Standing:
    settings = one.settings
    classes, topics, unknown = settings.retention or RetentionClasses(), list[TopicAge](), ""
    try:
        topics = await topic_ages(one, classes)
    except BrokerError as error:
        unknown = str(error)
    rows = await one.store.retention.lying(inbox=settings.inbox_retention, held=settings.held_retention)
    return Standing(
        services=[service.name for service in one.services],
        declared=settings.retention is not None,
        classes=[_line(one, classes, name) for name in CLASSES],
        topics=topics,
        unknown=unknown,
        rows=rows,
    )


def _line(one: App, classes: RetentionClasses, name: Retention) -> ClassLine:
    events = [
        known for service in one.services for known in service.declared.own_events if known.terms.retention == name
    ]
    kept = classes.of(name)
    return ClassLine(
        name=name,
        log=kept.log,
        archive=kept.archive,
        events=sorted(known.name for known in events),
        topics=sorted({known.topic for known in events}),
    )


async def _applied(services: Sequence[Service], action: Action, *, ask: bool, quiet: bool) -> list[Gone]:
    async with opened(services):
        apps = apps_of(services)
        found = [await _standing(one) for one in apps]
        if not quiet:
            _show(found, as_json=False)
        due = sum(one.due for one in found)
        if due and ask:
            await asyncio.to_thread(confirm, f"Let {_about(due, 'row')} go for good?")
        return [await _let_go(one, action) for one in apps] if due else []


async def _let_go(one: App, action: Action) -> Gone:
    sweep, gone = sweep_of(one.store, one.settings), {"inbox": 0, "held": 0}
    service = one.services[0].name
    async with one.actions.doing(msgspec.structs.replace(action, service=service, target="store", count=0)) as act:
        for place, step in (("inbox", sweep.inbox), ("held", sweep.held)):
            more = True
            while more:
                number, more = await step()
                gone[place] += number
                act.count = sum(gone.values())
                act.changed = {name: (count, 0) for name, count in gone.items()}
                await asyncio.sleep(0)
    return Gone(services=[service.name for service in one.services], inbox=gone["inbox"], held=gone["held"])


def _show(found: Sequence[Standing], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for one in found:
        say(", ".join(one.services), "bold")
        said = (
            "" if one.declared else " (nobody has declared it here: Settings(retention=RetentionClasses()) enforces it)"
        )
        say(f"what classes mean{said}")
        print_table(("CLASS", "IN THE LOG", "ALTOGETHER", "EVENTS"), [_class_row(line) for line in one.classes])
        say("")
        if one.unknown:
            say(f"the broker could not be asked: {one.unknown}", "yellow")
        elif one.topics:
            print_table(("TOPIC", "KEEPS FRAMES", "CLASS ASKS FOR", ""), [_topic_row(topic) for topic in one.topics])
        say("")
        print_table(("IN THE STORE", "STATE", "ROWS", "OLDEST", "DUE"), [_row(lying) for lying in one.rows])
        say("")
        if one.wrong:
            say(f"{counted(len(one.wrong), 'topic')} against its class: see `posthouse doctor TARGET`", "yellow")
    due = sum(one.due for one in found)
    say(
        f"{_about(due, 'row')} due: `posthouse retention apply TARGET`" if due else "nothing is due",
        "yellow" if due else "green",
    )


def _class_row(line: ClassLine) -> tuple[Cell, ...]:
    return line.name, days(line.log), days(line.archive), len(line.events)


def _topic_row(topic: TopicAge) -> tuple[Cell, ...]:
    wanted = f"{days(topic.kept.log)} to {days(topic.kept.archive)}"
    if not topic.known:
        return topic.topic, "no log", wanted, ""
    if topic.age is None:
        return topic.topic, "not made yet", wanted, ""
    waits = ", and until all have read them" if topic.age.waits else ""
    return topic.topic, f"{days(topic.age.seconds)}{waits}", wanted, topic.judgement


def _row(lying: Lying) -> tuple[Cell, ...]:
    rows = f"{MOST_COUNTED:,} or more" if lying.rows >= MOST_COUNTED else f"{lying.rows:,}"
    oldest = "" if lying.oldest is None else span(lying.oldest)
    return lying.place, lying.state, rows, oldest, f"{lying.due:,}"


def _about(number: int, thing: str) -> str:
    return f"{number:,} {thing}s or more" if number >= MOST_COUNTED else counted(number, thing)
