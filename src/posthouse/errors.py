"""Every exception that Posthouse raises, and the one helper that words suggestions.

PosthouseError
├── ConfigurationError        something declared or configured cannot work; lists every problem at once
├── SchemaError               a schema that cannot be read, or not within reason
├── EventError                a fact that cannot be said
│   ├── SubjectError          the name breaks the grammar
│   ├── EventTooLarge         more bytes than the limit
│   ├── DecodeError           bytes from the wire that cannot be read safely
│   ├── FrameRefused          a frame that may not come in: quarantined, with the reason
│   └── ContractError         a payload that does not fit its declared type
│       └── RuleBroken        a fact that may not be published: its rule is named
├── StoreError
│   ├── StoreUnavailable      busy or unreachable: trying again may help
│   │   ├── StoreBusy         what was needed was held by another transaction, and not waited for any longer
│   │   └── StoreCollision    rolled back because of another transaction: run the whole transaction again
│   ├── StoreFull             no room on the disk: nothing was written
│   ├── ValueRefused          a value that no column or index takes: too large, out of range, no text
│   ├── StoreOutdated         the tables are missing or older than the code: run `posthouse db upgrade`
│   ├── CommitUnknown         the commit's answer never came: it may or may not have happened
│   └── TransactionClosed     used after it ended (deadline passed, or the block was left)
├── VersionConflict           a stream is not at the version that was expected: load it and decide again
├── StreamClosed              a stream takes no more events
│   ├── StreamArchived        it can be read, and restored
│   └── StreamDeleted         nothing of it is left but its last fact
├── BrokerError
│   ├── BrokerUnavailable     nothing is known about the frames: publish them again later
│   └── SeekUnsupported       this broker cannot go back
├── ArchiveError              the archive cannot be written or read as it is
│   ├── ArchiveUnavailable    its object store is away: trying again may help
│   ├── ArchiveOvertaken      another member took over what this one was writing: nothing of it counts
│   └── ArchiveDamaged        a file is not what was written, or is missing
├── AuditError                the audit log cannot go on
│   ├── AuditUnavailable      the place that it is kept in is away: trying again may help
│   └── AuditDamaged          what it would go on from is not what was signed: `posthouse audit verify` names it
├── ContractsUnavailable      the place where contracts are published is away, or lacks what an event names: it waits
├── SecretsUnavailable        the keys of secret fields are out of reach: trying again helps once they are back
├── DeskError                 an operator's verb that does not fit; the message says which does
│   ├── DoneAlready           this very act was done before: nothing was done again
│   ├── ChangedSince          what was looked at has changed since: look again
│   └── GrantNeeded           somebody else has to approve it first, or it is approved no longer
├── RebuildStopped            a rebuild of a projection cannot go on; it can be run again
├── ReplayPaused              a replay cannot go on by itself; its job can be resumed
├── DeadlineExceeded          a handler ran past its deadline
└── HandlerSignal             raised by a handler to say what should happen next
    ├── RetryNow              run it again at once
    ├── RetryLater            run it again after a delay
    └── Reject                never run it again: dead at once
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import timedelta

from posthouse.redaction import redacted


class PosthouseError(Exception):
    """The root of the tree. What it says goes to logs, dead letters and terminals, so it shows no secret."""

    def __str__(self) -> str:
        return redacted(super().__str__())

    def __repr__(self) -> str:
        return redacted(super().__repr__())


class ConfigurationError(PosthouseError):
    """One or more things that were declared cannot work. `problems` holds one sentence each."""

    def __init__(self, *problems: str) -> None:
        self.problems: Sequence[str] = tuple(map(redacted, problems))
        super().__init__("\n".join(problems) if len(problems) == 1 else "\n".join(f"- {p}" for p in problems))


class SchemaError(PosthouseError, ValueError):
    """A schema that is invalid, of an unknown draft, not closed in itself, or too large or deep to work on."""


class EventError(PosthouseError, ValueError):
    """A fact that cannot be said."""


class SubjectError(EventError):
    """A subject that breaks the grammar `[namespace.]service.[aggregate.]verb_past.vN`."""


class EventTooLarge(EventError):
    """`size` bytes where `limit` are allowed; `where` names the limit."""

    def __init__(self, size: int, limit: int, where: str) -> None:
        self.size, self.limit, self.where = size, limit, where
        super().__init__(
            f"{where} is {size:,} bytes, the limit is {limit:,}: store the large part elsewhere and publish a reference to it"
        )


class DecodeError(EventError):
    """Bytes that are not an event, or not one that is safe to read. `reason` is a short word for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}")


class FrameRefused(EventError):
    """A frame that may not come in, whatever it says: its event is quarantined, with these words as the reason. `reason` is a short
    word for counting."""

    def __init__(self, words: str, reason: str = "refused") -> None:
        self.reason = reason
        super().__init__(words)


class ContractError(EventError):
    """A payload that does not fit the type declared for its subject."""


class RuleBroken(ContractError):
    """A fact that a rule of publishing forbids; `rule` is its name: `platform`, `cross-tenant`, `residency`, `provenance`,
    `retention`, `idempotency`, `publish-right` or `tenant-right`. Nothing was written."""

    def __init__(self, rule: str, detail: str) -> None:
        self.rule = rule
        super().__init__(f"rule {rule!r}: {detail}")


class StoreError(PosthouseError):
    """The database said no."""


class StoreUnavailable(StoreError):
    """Busy or unreachable; nothing was written, trying again may help."""


class StoreBusy(StoreUnavailable):
    """What was needed was held by another transaction for as long as was to be waited; nothing was written."""


class StoreCollision(StoreUnavailable):
    """Two transactions waited for each other or could not both be true; this one was rolled back. Run it again."""


class StoreFull(StoreError):
    """No room left on the disk; the transaction was rolled back."""


class ValueRefused(StoreError):
    """A value that the database cannot keep, whoever asks and however often: too large for an index, out of range, or text
    that is none. It belongs to the event that brought it."""


class StoreOutdated(StoreError):
    """Tables missing or older than the code."""


class CommitUnknown(StoreError):
    """The answer to COMMIT never came. Retry with the same idempotency key."""


class TransactionClosed(StoreError):
    """The transaction has ended: its deadline passed or its block was left."""


class VersionConflict(PosthouseError):
    """`stream` is at the version `found`, not at `expected`: somebody has appended to it meanwhile. Nothing was written."""

    def __init__(self, stream: str, expected: int, found: int) -> None:
        self.stream, self.expected, self.found = stream, expected, found
        wanted = f"not at {expected} as expected" if expected else "and was expected not to exist yet"
        super().__init__(f"{stream} is at version {found}, {wanted}: load it and decide again")


class StreamClosed(PosthouseError):
    """`stream` takes no more events. Nothing was written, and the transaction can be used further."""

    def __init__(self, stream: str, words: str) -> None:
        self.stream = stream
        super().__init__(f"{stream} {words}")


class StreamArchived(StreamClosed):
    """It was archived: it can be read, and takes events again once it is restored."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream, "is archived: restore it before anything is appended (`posthouse stream restore`)")


class StreamDeleted(StreamClosed):
    """It was deleted at `version`, with its last fact."""

    def __init__(self, stream: str, version: int) -> None:
        self.version = version
        super().__init__(
            stream,
            f"was deleted at version {version}: begin it again with append(…, expected='again'), if that is meant",
        )


class BrokerError(PosthouseError):
    """The broker said no."""


class BrokerUnavailable(BrokerError):
    """Unreachable or refusing everything; nothing is known about the frames in hand."""


class SeekUnsupported(BrokerError):
    """This broker keeps no history to go back to."""


class ArchiveError(PosthouseError):
    """The archive cannot be written or read as it is; the message says what to do."""


class ArchiveUnavailable(ArchiveError):
    """The object store is away or refuses us; nothing is known about what was under way, and trying again is safe."""


class ArchiveOvertaken(ArchiveError):
    """Another member took over what this one was writing, because it was silent for too long: what it wrote does not count."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive is truncated, changed or missing; `posthouse archive verify` names all of them."""


class AuditError(PosthouseError):
    """The audit log cannot go on."""


class AuditUnavailable(AuditError):
    """The folder or the bucket that the audit log is kept in does not answer."""


class AuditDamaged(AuditError):
    """What the audit log would go on from is not what was signed; nothing was signed on top of it."""


class ContractsUnavailable(PosthouseError):
    """Whether an event's schema is one of its version cannot be told now; an event that waits for it is not lost, and no run of it
    is counted."""


class SecretsUnavailable(PosthouseError):
    """The key store, or what unwraps its keys, is away. Nothing was written; an event that waits for them is not lost, and no run of
    it is counted."""


class DeskError(PosthouseError):
    """The verb does not fit the held event; the message says which one does."""


class DoneAlready(DeskError):
    """This very act was noted before in the operators' log; nothing was done again."""


class ChangedSince(DeskError):
    """What the act is about was changed since somebody looked at it; nothing was done."""


class GrantNeeded(DeskError):
    """A person may not replay or edit this without a grant that runs; nothing was done. `over`: they have none that does, so that
    whatever is under way stops; otherwise one that is for other events."""

    def __init__(self, message: str, *, over: bool = False) -> None:
        self.over = over
        super().__init__(message)


class RebuildStopped(PosthouseError):
    """A rebuild of a projection ended before its swap; what it has done stays, and the next run goes on from there."""


class ReplayPaused(PosthouseError):
    """Some of the events of a replay stand still; what it has done stays, and whoever resumes its job goes on from there."""


class DeadlineExceeded(PosthouseError):
    """A handler ran past its deadline; its transaction was rolled back."""


class HandlerSignal(PosthouseError):
    """Raised inside a handler to choose what happens to the event."""


class RetryNow(HandlerSignal):
    """Run the handler again at once, in a new transaction."""


LONGEST = 3650 * 86_400.0
"""Seconds, ten years: nobody means to wait longer, and a moment behind it may be none that can be written."""


class RetryLater(HandlerSignal):
    """Run the handler again after `seconds`, ten years at most; None follows the policy's schedule."""

    def __init__(self, message: str = "", *, seconds: float | None = None) -> None:
        given: object = seconds
        number = given if isinstance(given, int | float) and not isinstance(given, bool) else None
        if given is not None and (number is None or not 0 <= number <= LONGEST):
            meant = given.total_seconds() if isinstance(given, timedelta) else 60.0
            most = " from now, ten years at most" if number is not None and number > LONGEST else ""
            shown = repr(given) if number is None or abs(number) < 1e100 else "…"
            raise ConfigurationError(
                f"RetryLater(seconds={shown}): it is a number of seconds{most}: write seconds={meant!r}"
            )
        self.seconds = seconds
        super().__init__(message)


class Reject(HandlerSignal):
    """Never run the handler on this event again: it is dead at once. Raised by what a saga calls, it says that this try did nothing
    outside; with `every_try`, that no try of this call did."""

    def __init__(self, *words: object, every_try: bool = False) -> None:
        super().__init__(*words)
        self.every_try = every_try


MOST_CHOICES, LONGEST_WORD = 500, 200
"""So many choices are compared with a word, and so many characters of it."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest choice, or the list of choices when none is close. Of very many, only some are compared:
    both may be a stranger's."""
    known = sorted(choices)
    plain = {choice.lower(): choice for choice in known[:MOST_CHOICES]}
    close = difflib.get_close_matches(word[:LONGEST_WORD].lower(), plain, n=1, cutoff=0.55)
    if close:
        return f" Did you mean {plain[close[0]]!r}?"
    more = f" and {len(known) - MOST_CHOICES:,} more" if len(known) > MOST_CHOICES else ""
    return f" Known: {', '.join(known[:MOST_CHOICES])}{more}." if known else ""
