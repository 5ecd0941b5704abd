"""Survey: the checkpoints of a log and of its second place, where they contradict each other, and how far the log is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from posthouse.errors import AuditDamaged
from posthouse.history.audit.batches import EVENTS, BatchError, first_in, read_batch
from posthouse.history.audit.checkpoints import ALL, NEWEST, Signed, newest, read
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.notes import NoteError, Verifier, read_checkpoint
from posthouse.history.audit.place import Place
from posthouse.history.audit.standing import Standing

PATIENCE, PAUSE = 3, 0.2
"""How often, and after how many seconds, it is looked again for a file that is replaced at this moment."""


class Survey(msgspec.Struct, frozen=True):
    """`signed`: the checkpoints that can be believed, by size, smallest first. Where places differ it is that of the first one.
    `copied` is the size of the largest in the second place: what lies behind it is not there yet."""

    signed: Mapping[int, Signed]
    copied: int
    findings: Sequence[Finding]


def survey(place: Place, keys: Sequence[Verifier], second: Place | None = None) -> Survey:
    """Read every checkpoint there is, in both places."""
    here, found = _read_all(place, keys)
    there: dict[int, Signed] = {}
    if second is not None:
        there, more = _read_copies(second, keys, here, PATIENCE)
        found += [*more, *_contradictions(place, here, second, there), *_newest_file(second, keys, there, PATIENCE)]
        found += _behind(place, here, second, there)
    found += _newest_file(place, keys, here, PATIENCE)
    if not here and not found:
        found.append(Finding("checkpoint", f"{place.name} holds no checkpoint: nothing is proven of what is there"))
    both = {**there, **here}
    return Survey({size: both[size] for size in sorted(both)}, max(there, default=0), found)


def _read_all(place: Place, keys: Sequence[Verifier]) -> tuple[dict[int, Signed], list[Finding]]:
    good: dict[int, Signed] = {}
    bad: dict[str, str] = {}
    findings = []
    for path in place.list(ALL):
        try:
            one = read(place, path, keys)
        except NoteError as error:
            bad[path] = str(error)
            continue
        other = good.setdefault(one.checkpoint.size, one)
        if other.checkpoint.root != one.checkpoint.root:
            findings.append(Finding("split", f"{other.path} and {one.path} in {place.name} sign different events"))
    reasons = set(bad.values())
    if not good and len(bad) > 1 and len(reasons) == 1:
        return good, [
            Finding("checkpoint", f"none of the {len(bad)} checkpoints in {place.name} counts: {reasons.pop()}")
        ]
    return good, [
        *findings,
        *(Finding("checkpoint", f"{path} in {place.name}: {reason}") for path, reason in bad.items()),
    ]


def _read_copies(
    second: Place, keys: Sequence[Verifier], here: Mapping[int, Signed], looks: int
) -> tuple[dict[int, Signed], list[Finding]]:
    """Those of the second place; what is being signed gets there a moment later."""
    there, found = _read_all(second, keys)
    if here.keys() <= there.keys() or not looks:
        return there, found
    time.sleep(PAUSE)
    return _read_copies(second, keys, here, looks - 1)


def _behind(place: Place, here: Mapping[int, Signed], second: Place, there: Mapping[int, Signed]) -> Iterator[Finding]:
    """A second place that has less than the first contradicts nothing, and proves nothing."""
    if not (missing := sorted(here.keys() - there.keys())):
        return
    last = max(here)
    if not there:
        yield Finding(
            "back",
            f"the second place {second.name} holds no checkpoint that counts, {place.name} has one of {last:,} events: it was never "
            "written, was emptied, or is another one than was meant. Without it nobody sees that a log was made anew",
        )
    elif last > max(there):
        yield Finding(
            "back",
            f"the second place {second.name} is behind: its newest checkpoint is of {max(there):,} events, {place.name} has one of "
            f"{last:,}. What lies between has no second witness: it was put back, or `posthouse audit checkpoint` copies what it lacks",
        )
    else:
        paths = ", ".join(here[size].path for size in missing)
        yield Finding("checkpoint", f"{paths} of {place.name} is missing in the second place {second.name}")


def _contradictions(
    place: Place, here: Mapping[int, Signed], second: Place, there: Mapping[int, Signed]
) -> Iterator[Finding]:
    for size in sorted(here.keys() & there.keys()):
        if here[size].checkpoint.root != there[size].checkpoint.root:
            yield Finding(
                "split",
                f"two checkpoints of {size:,} events are signed, with different roots: {here[size].path} in {place.name} and "
                f"{there[size].path} in {second.name}: who signs has told two stories, or somebody else has the key",
            )
    ours, theirs = max(here, default=0), max(there, default=0)
    if ours < theirs:
        yield Finding(
            "back",
            f"the log went back: the newest checkpoint in {place.name} is of {ours:,} events, {second.name} has one of {theirs:,}",
        )
    if missing := [there[size].path for size in sorted(there.keys() - here.keys()) if size < ours]:
        yield Finding("checkpoint", f"{', '.join(missing)} of {second.name} is not in {place.name} any more")


def _newest_file(place: Place, keys: Sequence[Verifier], here: Mapping[int, Signed], looks: int) -> list[Finding]:
    """Whether the file that tools look for is the newest checkpoint. One that is being signed gets there a moment later."""
    if not here:
        return []
    last = here[max(here)]
    note = place.get(NEWEST)
    if note != last.note.encode() and looks:
        time.sleep(PAUSE)
        return _newest_file(place, keys, here, looks - 1)
    if note is None:
        return [Finding("file", f"`{NEWEST}` is missing in {place.name}: it is to hold what {last.path} holds")]
    try:
        said = read_checkpoint(note.decode(errors="replace"), keys)
    except NoteError as error:
        return [Finding("checkpoint", f"`{NEWEST}` in {place.name}: {error}")]
    if said == last.checkpoint:
        return []
    if said.size > last.checkpoint.size:
        if any(place.list(ALL, f"{ALL}{said.size:016d}-")):
            return []  # signed since the others were read
        return [
            Finding(
                "back",
                f"`{NEWEST}` in {place.name} is of {said.size:,} events, and {last.path} is the last that is kept",
            )
        ]
    if said.size < last.checkpoint.size:
        words = f"`{NEWEST}` in {place.name} went back: it is of {said.size:,} events, {last.path} is of {last.checkpoint.size:,}"
        return [Finding("back", words)]
    return [Finding("split", f"`{NEWEST}` in {place.name} is none of the checkpoints that are kept there")]


def standing(place: Place, second: Place | None, keys: Sequence[Verifier], now: float) -> Standing:
    """How a log stands, without its events being read. AuditDamaged where a newest checkpoint cannot be believed."""
    try:
        latest, copied = newest(place, keys), None if second is None else newest(second, keys)
    except NoteError as error:
        raise AuditDamaged(f"the newest checkpoint in {place.name}: {error}") from error
    last = max((path for path in place.list(EVENTS) if first_in(path) is not None), default=None)
    events = 0
    if last is not None:
        try:
            batch = read_batch(place.get(last) or b"")
        except BatchError as error:
            raise AuditDamaged(f"{last} in {place.name}: {error}: run `posthouse audit verify`") from error
        events = batch.first + len(batch.events)
    return Standing(
        events=events,
        signed=latest.checkpoint.size if latest else 0,
        path=latest.path if latest else None,
        age=max(0.0, now - latest.at) if latest else None,
        copied=copied.checkpoint.size if copied else None,
        has_second=second is not None,
    )
