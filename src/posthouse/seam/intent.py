"""Intent: the idempotency key of a fact that follows from something, so that the same cause says it under the same key again.

`service:aggregate:verb:` and then, of a handler's fact, the consumer, the id of the event in hand, which fact of its kind it is,
and its own key. It is in the envelope alone, and not remembered by the store: there the inbox sees to it that a cause is answered
once. See docs/adr/0021.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from posthouse.contracts import EventType
from posthouse.events.limits import MAX_BYTES

LONGEST = MAX_BYTES["idempotency_key"]


class Cause:
    """What facts follow from: one event, as one consumer takes it. It counts what was said, so that two facts of one kind about
    one thing are two; what a savepoint took back stays counted. `again`: it is answered once more, by an operator's replay, and
    what it said before is not to be said twice: then the store looks its keys up, and remembers them."""

    __slots__ = ("_begin", "_said", "again")

    def __init__(self, consumer: str, id: str, *, again: bool = False) -> None:
        self._begin = (consumer, id)
        self.again = again
        self._said: dict[tuple[str, str | None], int] | None = None

    def intent(self, event_type: EventType[object], key: str | None) -> str:
        """The key of the next fact of this kind. Versions of one fact share it: they mean the same."""
        if self._said is None:
            self._said = {}
        kind = (event_type.scope, key)
        number = self._said[kind] = self._said.get(kind, 0) + 1
        consumer, id = self._begin
        if ":" in id or "%" in id:  # of others: their ids may have anything in them
            id = quote(id, safe="")
        return fitted(
            event_type.scope, f"{consumer}:{id}:{number}" if key is None else f"{consumer}:{id}:{number}:{key}"
        )


def fitted(scope: str, rest: str) -> str:
    """Both, or a digest of the rest where they would be longer than a key may be."""
    text = f"{scope}:{rest}"
    if len(text) <= LONGEST // 4 or len(text.encode()) <= LONGEST:
        return text
    return f"{scope[: LONGEST // 2]}:{hashlib.sha256(text.encode()).hexdigest()}"
