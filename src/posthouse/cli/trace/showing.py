"""Showing a trace: one line per event, drawn as a tree, with what consumers did below it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.text import Text

from posthouse.cli.output import STYLES, counted, one_line, plain, say, span, stdout
from posthouse.cli.trace.expecting import Expectation
from posthouse.events import timestamp
from posthouse.tracing import Branch, Heard, Place, SagaStep, Spot, Trace
from posthouse.tracing.tree import DRAWN

COLOURS = {**STYLES, "applied": "green", "passed": "green", "waiting": "yellow", "unknown": "yellow"}

PLACES: dict[Place, str] = {
    "log": "",
    "outbox": "found only in the outbox",
    "refused": "the broker refuses it, see `posthouse outbox list TARGET`",
    "held": "found only among held events",
    "timer": "a timer",
}

LEGEND = {
    "passed": "passed: the key is past this event, which was applied or was there before the consumer joined",
    "waiting": "waiting: it did not reach the consumer yet; is `posthouse run` running?",
    "unknown": "unknown: so long ago that the consumer's inbox has forgotten it",
}


def show(trace: Trace) -> None:
    """The tree for people."""
    first = trace.branches[0].spot
    lines: list[Text] = []
    for branch in trace.branches:
        event_id = branch.spot.event.id
        lines.append(_event(branch, first, trace.deadlines.get(event_id, "")))
        lines += _below(branch, trace.heard.get(event_id, []), trace.correlation)
    # Colours of a long tree take longer than finding it: nobody sees them in a file.
    say(Text("\n").join(lines) if stdout().is_terminal else "\n".join(line.plain for line in lines))
    say("")
    say(_sum(trace))
    states = {heard.state for found in trace.heard.values() for heard in found}
    for state, words in LEGEND.items():
        if state in states:
            say(words, "dim")
    for note in trace.notes:
        say(f"note: {note}", "yellow")
    if held := [heard for found in trace.heard.values() for heard in found if heard.held is not None]:
        say(f"{counted(len(held), 'held event')}: see `posthouse held show TARGET {held[0].held}`", "yellow")


def show_expectation(expected: Expectation) -> None:
    """What of a flow came, and what did not."""
    say("")
    say(f"Flow {expected.name} of {expected.service}", "bold")
    if not expected.started:
        say("✗ it did not begin here", "bold red")
        return
    for subject in expected.came:
        say(f"✓ {subject}", "green")
    for subject in expected.open:
        say(f"· {subject} may come, and did not")
    for missing in expected.missing:
        say(f"✗ {missing.subject} is missing", "bold red")
        for reason in missing.why:
            say(f"    {reason}")


def facts(trace: Trace) -> dict[str, object]:
    """What `--json` prints: the events in the order of the tree, each with its depth."""
    return {
        "correlation": trace.correlation,
        "traces": _traces(trace),
        "services": trace.services,
        "frames_read": trace.read,
        "since": None if trace.since is None else timestamp(trace.since),
        "notes": trace.notes,
        "events": [_facts(branch, trace) for branch in trace.branches],
    }


def _facts(branch: Branch, trace: Trace) -> dict[str, object]:
    spot, event = branch.spot, branch.spot.event
    return {
        "id": event.id,
        "type": event.type,
        "service": spot.service,
        "at": timestamp(spot.at),
        "tenant": event.tenant,
        "key": event.key,
        "sequence": event.sequence,
        "topic": spot.topic,
        "causation": event.causation,
        "correlation": event.correlation,
        "depth": branch.depth,
        "found_in": spot.place,
        "refused_because": spot.note,
        "deadline": trace.deadlines.get(event.id),
        "consumers": [msgspec.structs.asdict(heard) for heard in trace.heard.get(event.id, ())],
    }


def _event(branch: Branch, first: Spot, deadline: str) -> Text:
    spot, event = branch.spot, branch.spot.event
    line = Text(_lines(branch), "dim")
    line.append(plain(event.type), "bold")
    line.append(f"  {plain(spot.service)}  ")
    line.append(timestamp(spot.at) if spot is first else _offset(spot.at - first.at), "cyan")
    line.append(f"  {plain(event.tenant)}")
    line.append(f"  {plain(event.key)}" if event.key else "")
    line.append(f"  {plain(deadline)}" if deadline else "")
    return line


def _below(branch: Branch, heard: list[Heard], correlation: str) -> Iterator[Text]:
    """Why it stands where it stands, and one part for each consumer."""
    event = branch.spot.event
    if correlation not in (event.id, event.correlation):
        yield _remark(branch, Text(f"of another correlation, {plain(event.correlation or event.id)}", "dim"))
    if branch.cause is not None:
        yield _remark(branch, Text(f"caused by {plain(branch.cause)}, which was not found", "dim"))
    if place := PLACES[branch.spot.place]:
        reason = f": {one_line(branch.spot.note)}" if branch.spot.note else ""
        yield _remark(branch, Text(plain(place + reason), "yellow"))
    for one in heard:
        said = Text(f"{plain(one.consumer)} ")
        said.append(one.state, COLOURS.get(one.state, ""))
        if one.held is not None:
            said.append(f", held event {one.held}: {plain(one_line(one.note))}")
        if one.saga is not None:
            said.append(_turn(one.saga, correlation))
        yield _remark(branch, said)


def _turn(step: SagaStep, correlation: str) -> str:
    what = f"{step.method}, " if step.method else ""
    late = ", came late" if step.late else ""
    attempt = f" attempt {step.attempt}" if step.attempt > 1 else ""
    elsewhere = f"; it goes on in {step.correlation}" if step.correlation not in (None, correlation) else ""
    return plain(f", {step.saga} {step.id}{attempt} turn {step.turn}: {what}{step.status}{late}{elsewhere}")


def _remark(branch: Branch, said: Text) -> Text:
    stem = "".join("   " if last else "│  " for last in branch.last) + ("│  " if branch.has_children else "   ")
    return Text(stem, "dim") + Text("→ ", "dim") + said


def _lines(branch: Branch) -> str:
    """The lines of the tree in front of an event."""
    if branch.depth == 0:
        return ""
    *before, own = branch.last
    deeper = f"({branch.depth}) " if branch.depth > DRAWN else ""
    return "".join("   " if last else "│  " for last in before) + ("└─ " if own else "├─ ") + deeper


def _offset(seconds: float) -> str:
    """Seconds after the first event; negative where clocks differ."""
    return f"+{span(seconds)}" if seconds >= 60 else f"{seconds:+.3f} s"


def _sum(trace: Trace) -> str:
    spots = [branch.spot for branch in trace.branches if branch.spot.place != "timer"]
    length = max(spot.at for spot in spots) - min(spot.at for spot in spots) if spots else 0.0
    return (
        f"{counted(len(trace.branches), 'event')} of {counted(len(trace.services), 'service')} within "
        f"{span(length) if length >= 60 else f'{length:.3f} s'}, correlation {plain(trace.correlation)}"
        + (f", trace {', '.join(_traces(trace))}" if _traces(trace) else "")
    )


def _traces(trace: Trace) -> list[str]:
    """The ids under which a collector has it, where somebody traces."""
    placed = [one.traceparent for one in (branch.spot.event for branch in trace.branches) if one.traceparent]
    return list(dict.fromkeys(traceparent[3:35] for traceparent in placed))
