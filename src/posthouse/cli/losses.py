"""Losses: what `posthouse status` says of events that a consumer never got."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from posthouse.cli.output import counted
from posthouse.missing import Remedy
from posthouse.store.actions import Action
from posthouse.watch.status import Line


def advice(remedy: Remedy, targets: Sequence[str]) -> str:
    """What to do about missing events, with the command to run."""
    names = " ".join(map(shlex.quote, targets))
    what = f"{remedy.consumer} in {remedy.topic}: {counted(remedy.missing, 'event')} missing"
    if remedy.since is None:
        return (
            f"{what}, and the store of {remedy.producer} has no event of this topic any more that could be sent again. If the broker "
            f"cannot get them back, accept it: `posthouse outbox accept-loss {names} --consumer {remedy.consumer} --topic "
            f"{remedy.topic} --why …`"
        )
    return (
        f"{what}; the store of {remedy.producer} still has what was said since {when(remedy.since)}. See whether they are among it, "
        f"and send them again without --dry-run: `posthouse outbox resend {names} --topic {remedy.topic} --missing --dry-run`"
    )


def losses(lines: Sequence[Line], accepted: Mapping[tuple[str, str], Action]) -> Iterator[str]:
    """What was accepted as lost, by whom and why, as far as the operators' log goes back."""
    for line in lines:
        if not line.lost:
            continue
        last = accepted.get((line.consumer, line.topic))
        who = f", the last time by {last.by} on {when(last.at)}{f': {last.why}' if last.why else ''}" if last else ""
        yield f"{line.consumer} in {line.topic}: {counted(line.lost, 'event')} accepted as lost{who}"


def gaps(lines: Sequence[Line], targets: Sequence[str]) -> Iterator[str]:
    """What waits for a number that did not come in time, and what to do."""
    for line in lines:
        if line.overdue:
            one = line.overdue == 1
            yield (
                f"{line.consumer} in {line.topic}: {counted(line.overdue, 'event')} {'waits' if one else 'wait'} too long at a gap, for "
                f"a number that never came: see `posthouse held list {one_target(targets)} --state gap`. Send it again "
                f"(`posthouse outbox resend {' '.join(map(shlex.quote, targets))} --topic {line.topic} --missing`), or give it up "
                f"(`posthouse held release {one_target(targets)} ID`)"
            )


def one_target(targets: Sequence[str]) -> str:
    """For commands that take one service, and nobody knows which of several it is."""
    return shlex.quote(targets[0]) if len(targets) == 1 else "TARGET"


def when(moment: float) -> str:
    """A moment, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
