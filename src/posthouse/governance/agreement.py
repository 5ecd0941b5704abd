"""Agreement: whether the code and its frozen files say the same, with a sentence for each place where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from posthouse.contracts.lock import LOCK, Locked
from posthouse.governance.bundle import CONSUMERS, TOPICS, Bundle, topics_hash
from posthouse.governance.document import Document, EventEntry, TopicEntry
from posthouse.governance.envelopes import envelopes_of
from posthouse.governance.freezing import by_place, merged_consumers, merged_topics, stale_places, with_terms

Kind = Literal["missing", "changed", "terms", "stale", "edited", "topics", "consumers"]

FREEZE = "run `posthouse catalog freeze` and commit the result"


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """`missing`: not frozen. `changed`: other content under the same version. `terms`: another key, topic, owner,
    retention or residency. `stale`: no longer declared. `edited`: the files and the lock contradict each other. `topics`: a
    topic is not as declared. `consumers`: a handler reads something else than the files say."""

    kind: Kind
    path: str
    sentence: str


def disagreements(document: Document, bundle: Bundle) -> list[Disagreement]:
    """Every difference between the catalogue of some services and a bundle, sorted by path. What the bundle holds of
    other services is not looked at."""
    found = [*_schemas(document, bundle), *_stale(document, bundle), *_topics(document, bundle)]
    found += [*_consumers(document, bundle), *_envelopes(document, bundle)]
    return sorted(found, key=lambda one: (one.path, one.kind))


def _schemas(document: Document, bundle: Bundle) -> Iterator[Disagreement]:
    for path, entry in by_place(document).items():
        frozen, locked = bundle.schemas.get(path), bundle.lock.schemas.get(path)
        if frozen is None:
            yield Disagreement(kind="missing", path=path, sentence=f"{entry.subject} is not frozen: {FREEZE}")
        elif frozen.schema.hash != entry.hash:
            yield Disagreement(kind="changed", path=path, sentence=_changed(path, entry, frozen.schema.hash))
        if frozen is not None and (locked is None or locked.hash != frozen.schema.hash):
            yield Disagreement(kind="edited", path=path, sentence=_edited(path, locked is not None))
        if locked is not None and locked.topic and (difference := _terms(with_terms(locked, entry), locked)):
            yield Disagreement(kind="terms", path=path, sentence=f"{entry.subject} {difference}: {FREEZE}")


def _terms(wanted: Locked, found: Locked) -> str:
    names = [name for name in Locked.__struct_fields__ if getattr(wanted, name) != getattr(found, name)]
    return "; ".join(f"has {_said(getattr(wanted, n))} as {n}, not {_said(getattr(found, n))}" for n in names)


def _changed(path: str, entry: EventEntry, frozen: str) -> str:
    return (
        f"{entry.subject} changed without a new version: the code has {_short(entry.hash)}, {path} has {_short(frozen)}. "
        f"If readers of the old and the new form get along, {FREEZE}; if not, leave v{entry.version} as it was and declare "
        f"v{entry.version + 1}"
    )


def _edited(path: str, listed: bool) -> str:
    if not listed:
        return f"{path} is not in {LOCK}: it was put there by hand; {FREEZE}"
    return f"{path} and {LOCK} contradict each other: one was edited by hand, or merged badly; {FREEZE}"


def _stale(document: Document, bundle: Bundle) -> Iterator[Disagreement]:
    for path in stale_places(document, bundle):
        if path in bundle.schemas:
            sentence = (
                f"{path} is frozen, but its service declares no such event: declare it again, or remove it with "
                "`posthouse catalog freeze --prune` once nobody reads it"
            )
            yield Disagreement(kind="stale", path=path, sentence=sentence)
        else:
            sentence = f"{LOCK} lists {path}, which is not there: restore it, or run `posthouse catalog freeze --prune`"
            yield Disagreement(kind="edited", path=path, sentence=sentence)


def _topics(document: Document, bundle: Bundle) -> Iterator[Disagreement]:
    wanted = {topic.name: topic for topic in merged_topics(document, bundle.topics)}
    found = {topic.name: topic for topic in bundle.topics}
    for name in sorted(wanted.keys() | found.keys()):
        difference = _difference(wanted.get(name), found.get(name))
        if difference:
            sentence = f"the topic {name} {difference}: {FREEZE}"
            yield Disagreement(kind="topics", path=TOPICS, sentence=sentence)
    if bundle.topics and bundle.lock.topics != topics_hash(bundle.topics):
        sentence = f"{TOPICS} and {LOCK} contradict each other: one was edited by hand, or merged badly; {FREEZE}"
        yield Disagreement(kind="edited", path=TOPICS, sentence=sentence)


def _consumers(document: Document, bundle: Bundle) -> Iterator[Disagreement]:
    wanted = {(entry.consumer, entry.handler): entry for entry in merged_consumers(document, bundle.consumers)}
    found = {(entry.consumer, entry.handler): entry for entry in bundle.consumers}
    for place in sorted(wanted.keys() | found.keys()):
        if wanted.get(place) != found.get(place):
            consumer, handler = place
            sentence = f"{handler} of the consumer {consumer} does not read what {CONSUMERS} says: {FREEZE}"
            yield Disagreement(kind="consumers", path=CONSUMERS, sentence=sentence)


def _envelopes(document: Document, bundle: Bundle) -> Iterator[Disagreement]:
    """A folder of an older release has none of them."""
    for path, wanted in envelopes_of(document).items():
        if bundle.envelopes.get(path, wanted) != wanted:
            sentence = f"{path} is not the schema of the envelope that these services write: {FREEZE}"
            yield Disagreement(kind="edited", path=path, sentence=sentence)


def _difference(wanted: TopicEntry | None, found: TopicEntry | None) -> str:
    if found is None:
        return f"is not in {TOPICS}"
    if wanted is None:
        return f"is in {TOPICS}, but no service declares it any more"
    names = [name for name in TopicEntry.__struct_fields__ if getattr(wanted, name) != getattr(found, name)]
    return "; ".join(f"has {_said(getattr(wanted, n))} as {n}, not {_said(getattr(found, n))}" for n in names)


def _said(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "nothing"
    return str(value) if value not in ("", None) else "nothing"


def _short(content_hash: str) -> str:
    return content_hash[:19] + "…"
