"""The name of a fact: `[namespace.]service.[aggregate.]verb_past.vN`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from posthouse.errors import SubjectError
from posthouse.events.tense import is_past, past_of

GRAMMAR = "[namespace.]service.[aggregate.]verb_past.vN"

EXCEPTIONS = frozenset({"no_show", "vendor.error"})
"""Facts that are not past tense and are allowed all the same, as `verb` or `aggregate.verb`."""

MAX_LENGTH = 200
"""Characters; brokers stop at 249 (Kafka) and 255 (Pub/Sub), and `.dlq` and friends are added to it."""

_TOKEN = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_VERSION = re.compile(r"v([1-9][0-9]{0,8})")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed subject; `str()` gives back its text.

    Four tokens can be read in two ways. `parse` reads them as `service.aggregate.verb.vN`, unless the first token is
    the `namespace` it was given: then as `namespace.service.verb.vN`. Text, topics and equality of text do not depend
    on the reading.
    """

    service: str
    verb: str
    version: int
    namespace: str | None = None
    aggregate: str | None = None

    @classmethod
    def parse(
        cls, text: str, *, namespace: str | None = None, exceptions: Collection[str] = (), past: bool = True
    ) -> Subject:
        """Read a full subject. `exceptions` adds verbs (`verb` or `aggregate.verb`) that need not be past tense; with
        `past=False` none need: what others call their facts is up to them.

        Raises SubjectError, which says what is wrong, where, and what to write instead.
        """
        *names, verb, version = _tokens(text, least=3, most=5)
        known = len(names) == 3 or (len(names) == 2 and names[0] == namespace)
        owner = names.pop(0) if known else None
        aggregate = names[1] if len(names) == 2 else None
        subject = cls(
            namespace=owner, service=names[0], aggregate=aggregate, verb=verb, version=_version(text, version)
        )
        if past:
            subject._refuse_present_tense(exceptions)
        return subject

    @classmethod
    def build(
        cls,
        *,
        service: str,
        verb: str,
        version: int = 1,
        namespace: str | None = None,
        aggregate: str | None = None,
        exceptions: Collection[str] = (),
    ) -> Subject:
        """Make a subject from its parts, under the same rules as `parse`."""
        subject = cls(namespace=namespace, service=service, aggregate=aggregate, verb=verb, version=version)
        text = str(subject)
        for token in (namespace, service, aggregate, verb):
            if token is not None and "." in token:
                raise SubjectError(
                    f"{text!r}: {token!r} is one part of a subject and holds a dot; give its parts one by one"
                )
        _version(text, _tokens(text, least=3, most=5)[-1])
        subject._refuse_present_tense(exceptions)
        return subject

    @classmethod
    def relative(
        cls, text: str, *, service: str, namespace: str | None = None, exceptions: Collection[str] = ()
    ) -> Subject:
        """Read a subject as its own service writes it: `order.placed.v1` or `uploaded.v1`.

        Two and three tokens are always `verb.vN` and `aggregate.verb.vN`, so that `tenant.created.v1` in the service
        `tenant` is `tenant.tenant.created.v1`. More tokens must begin with the service's own name.
        """
        *names, verb, version = _tokens(text, least=2, most=5)
        if len(names) > 1:
            own = [namespace, service] if len(names) == 3 or names[0] == namespace else [service]
            if names[: len(own)] != own:
                raise SubjectError(
                    f"{text!r} is not a subject of the service {'.'.join(filter(None, (namespace, service)))!r}; "
                    f"write '{'.'.join((*names[-1:], verb, version))}' for its own facts"
                )
            names = names[len(own) :]
        return cls.build(
            namespace=namespace,
            service=service,
            aggregate=names[0] if names else None,
            verb=verb,
            version=_version(text, version),
            exceptions=exceptions,
        )

    def __str__(self) -> str:
        return f"{self.unversioned}.v{self.version}"

    @property
    def unversioned(self) -> str:
        """The text without its version: `shop.orders.order.placed`."""
        return f"{self.topic_by_aggregate}.{self.verb}"

    @property
    def topic_by_aggregate(self) -> str:
        """The topic that holds every fact of one aggregate, in order: `shop.orders.order`, or `shop.file`."""
        return ".".join(filter(None, (self.namespace, self.service, self.aggregate)))

    @property
    def topic_by_subject(self) -> str:
        """The topic that holds this fact and version alone: the full text."""
        return str(self)

    def _refuse_present_tense(self, exceptions: Collection[str]) -> None:
        names = (self.verb, f"{self.topic_by_aggregate.rpartition('.')[2]}.{self.verb}")
        if is_past(self.verb) or any(name in EXCEPTIONS or name in exceptions for name in names):
            return
        guess = past_of(self.verb)
        raise SubjectError(
            f"{str(self)!r}: {self.verb!r} is not past tense{f'; did you mean {guess!r}?' if guess else '.'} "
            f"An event is a fact that has happened; if this is one, say so: Service(…, not_past=[{names[1]!r}])"
        )


def _tokens(text: str, *, least: int, most: int) -> Sequence[str]:
    if len(text) > MAX_LENGTH:
        raise SubjectError(f"{text[:40]!r}… has {len(text)} characters, a subject has at most {MAX_LENGTH}")
    tokens = text.split(".")
    for place, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            raise SubjectError(f"{text!r}: token {place} ({token!r}) {_why_no_token(token, last=place == len(tokens))}")
    if not least <= len(tokens) <= most:
        raise SubjectError(f"{text!r} has {len(tokens)} tokens; write {GRAMMAR}, {least} to {most} tokens between dots")
    return tokens


def _why_no_token(token: str, *, last: bool) -> str:
    if not token:
        return "is empty: two dots stand side by side, or one at an end"
    if last and token.isascii() and token.isdigit():
        return f"is no version; did you mean 'v{token}'?"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", token).lower()
    snake = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    hint = f"; did you mean {snake!r}?" if _TOKEN.fullmatch(snake) else ""
    return f"is not snake_case (lower-case ASCII letters, digits, single underscores, a letter first){hint}"


def _version(text: str, token: str) -> int:
    found = _VERSION.fullmatch(token)
    if found:
        return int(found[1])
    if re.fullmatch(r"v[0-9]+", token):
        raise SubjectError(
            f"{text!r}: versions are v1, v2, … up to nine digits and without leading zeros, not {token!r}"
        )
    raise SubjectError(f"{text!r} ends in {token!r}, not in a version; did you mean '{text}.v1'?")


def why_no_token(word: str) -> str:
    """Why a word cannot be a part of a subject, and what could; empty when it can."""
    if not word:
        return "is empty: give it a name, as in 'orders'"
    return "" if _TOKEN.fullmatch(word) else _why_no_token(word, last=False)


def subject_for(name: str) -> str:
    """What the event of a class could be called: `OrderPlaced` is `order.placed.v1`."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)] or ["placed"]
    return ".".join((*(["_".join(words[:-1])] if words[1:] else []), words[-1], "v1"))
