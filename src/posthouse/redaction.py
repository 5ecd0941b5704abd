"""Redaction: what may be shown of a text that leaves the process. Logs, errors, dead letters, checks and traces all pass here.

A secret is known by where it stands: behind the user of a URL, after the name of an option that holds one, in an
`Authorization` header, in a private key. What databases and their libraries quote of the values that they were given is none
of a log's business either. Too much is hidden rather than too little, and a hostile text costs its length.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

HIDDEN = "…"

MOST_WORDS = 2_000
"""Characters of an error's words that are kept."""

CARRIED = re.compile(r"(?:⟨|(?<!\\)\\+u27e8)sealed ([A-Za-z0-9+/=]{8,})(?:⟩|\\+u27e9)?", re.IGNORECASE)
"""A secret text that a saga was given to pass on, with its proof, also as JSON inside of a text writes it."""

TOKENS = ("nats", "tls", "ws", "wss", "http", "https")
"""Schemes whose user is a token where there is no password."""


class _Spelling(NamedTuple):
    """How a URL is written: plainly, or as a value in another URL."""

    mark: re.Pattern[str]
    stop: re.Pattern[str]
    colon: str
    at: re.Pattern[str]
    end: re.Pattern[str]


_PLAIN = _Spelling(re.compile("://"), re.compile("[/?#:@]"), ":", re.compile("@"), re.compile(r"\s"))
_ENCODED = _Spelling(
    re.compile("%3A%2F%2F", re.IGNORECASE),
    re.compile("%2F|%3F|%23|%3A|%40", re.IGNORECASE),
    "%3A",
    re.compile("%40", re.IGNORECASE),
    re.compile(r"[\s&]"),
)
_PORTS = re.compile(r"\d*+(?:,[\w.\[\]:-]*+)?+[\"')\]}>.,;]*+")
_PATH = re.compile("[/?#]")
_NEWLINE = re.compile("\n")
_WORD = re.compile(r"[^=:,%\s]*")
"""Every place where a secret may stand has one of these beside it: most ids, names and subjects have none."""

_NAME = re.compile(
    r"""
    (?: password | passwd | passphrase | \bpass | pwd | secret | token | api[_-]?key | access[_-]?key | private[_-]?key
      | key\.pem | keystore\.(?:key|location\.pem) | jaas\.config | oauthbearer\.config )
    (?: [_.-] (?:access[_-])?+ (?:key|id|stdin|value) )*+
    (?P<before> \\?+ (?: ["']\s*+, | ["']?+\s*+ (?: =>? | :(?!/) | %3D | %3A ) ) \s*+
      (?P<value> b?'(?:[^'\\]++|\\.)*+' | b?"(?:[^"\\]++|\\.)*+" | \\"[^"\\]*+\\" | [^\s&]++ ) )?+
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""The name of a secret, and the secret if one follows. A name without one is a match too, so that nothing is read twice."""

_AGAIN = 3
"""Characters at the end of a name in which another may begin: `private_key` and `key.pem`."""

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(\binput_value=).{0,300}?(, input_type=)"),
        rf"\1{HIDDEN}\2",
    ),  # pydantic quotes what it refuses
    (re.compile(r"\[parameters: [^\n]*"), f"[parameters: {HIDDEN}]"),  # SQLAlchemy
    (
        re.compile(
            r"(Failing row contains \()(?:(?!\n(?:[A-Z]+: |\[SQL: |\n(?:The above|During handling))).)*", re.DOTALL
        ),
        rf"\1{HIDDEN})",
    ),  # PostgreSQL, as the next two
    (
        re.compile(r"(\bKey \([^=\n]{0,200}\)=\()[^\n]*?(?=\) (?:already|is |conflicts)|$)", re.MULTILINE),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(\binvalid input syntax for type [\w ]{1,60}: )[^\n]*"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"(\binvalid input for query argument \$\d+[^:\n]{0,60}: )[^\n]*?(?= \((?:expected|value|a |an )|$)",
            re.MULTILINE,
        ),
        rf"\1{HIDDEN}",
    ),  # asyncpg
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"\b(authorization\\?[\"']?\s*+[:=,]\s*+[\"']?(?:\w++\s++)?)[^\s\"']+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)(\s++)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1\2{HIDDEN}"),
)

_CLOSED = ', input_type=%40@\'\\""'
"""Ends every secret that a cut left open, so that it is known for one."""


def without_carried(text: str) -> str:
    """A text without what sagas carry: whoever has that may have it encrypted anew. The same by the same stand-in, which opens nothing."""
    return CARRIED.sub(_stand_in, text)


def _stand_in(found: re.Match[str]) -> str:
    return f"⟨sealed #{sha256(found[1].encode()).hexdigest()[:12]}⟩"


def redacted(text: str) -> str:
    """The text without its secrets. One that has none comes back as it is."""
    if _WORD.fullmatch(text):
        return text
    text = without_carried(text)
    for spelling in (_PLAIN, _ENCODED):
        text = _Users(text, spelling).hidden()
    for pattern, shown in _STEPS:
        text = pattern.sub(shown, text)
    return _without_named(text)


def read_of(text: str, most: int) -> str:
    """What so many characters at the beginning say, without secrets; one that stands where the reading ends is hidden too."""
    if len(text) <= most:
        return redacted(text)
    words = text[:most].rsplit(None, 1)
    return redacted(f"{words[0]}{_CLOSED}").removesuffix(_CLOSED)


def head_of(text: str, most: int) -> str:
    """At most so many characters of the beginning, without secrets. Of a long text not all is read."""
    return read_of(text, most * 8)[:most]


def names_a_secret(name: str) -> bool:
    """Whether what is called so is a secret: a text would not show it either."""
    said = f"{name}=x"
    return redacted(said) != said


def words_of(error: BaseException) -> str:
    """What an error says, as text that every log and database takes, whatever the error is made of."""
    try:
        text = str(error)
    except Exception:
        text = "(it cannot be put into words)"
    return storable(head_of(text, MOST_WORDS))


def storable(text: str) -> str:
    """Text without NUL characters and halves of surrogate pairs, which databases and wires refuse."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")


def _without_named(text: str) -> str:
    """Hide what follows the name of a secret."""
    pieces: list[str] = []
    done = start = 0
    while found := _NAME.search(text, start):
        if found["value"] is None:
            start = max(found.start() + 1, found.end() - _AGAIN)
        else:
            pieces += (text[done : found.start("value")], HIDDEN)
            done = start = found.end()
    return "".join((*pieces, text[done:]))


class _Ahead:
    """Where the next place of a kind is. Asked for places that grow, it reads the text once."""

    def __init__(self, kind: re.Pattern[str], text: str) -> None:
        self._kind = kind
        self._text = text
        self._from = self._next = -1

    def after(self, start: int) -> int:
        """The first at or after here; the length of the text where there is none."""
        if not self._from <= start <= self._next:
            found = self._kind.search(self._text, start)
            self._from, self._next = start, found.start() if found else len(self._text)
        return self._next


class _Users:
    """The users of the URLs of a text."""

    def __init__(self, text: str, spelling: _Spelling) -> None:
        self._text = text
        self._spelling = spelling
        self._at = _Ahead(spelling.at, text)
        self._end = _Ahead(spelling.end, text)
        self._line = _Ahead(_NEWLINE, text)

    def hidden(self) -> str:
        """The text without the password of each URL, or the token that is its user."""
        text = self._text
        pieces: list[str] = []
        done = 0
        for mark in self._spelling.mark.finditer(text):
            if mark.end() < done:
                continue
            if self._at.after(mark.end()) == len(text):
                break
            secret = self._secret(mark.start(), mark.end())
            if secret is not None:
                pieces += (text[done : secret[0]], HIDDEN)
                done = secret[1]
        return "".join((*pieces, text[done:]))

    def _secret(self, scheme_end: int, start: int) -> tuple[int, int] | None:
        """From where to where the secret of a URL stands whose authority begins at `start`."""
        text, spelling = self._text, self._spelling
        end = self._end.after(start)
        stop = spelling.stop.search(text, start, end)
        if stop is None:
            return None
        if spelling.at.fullmatch(stop[0]):
            return (start, stop.start()) if text.endswith(TOKENS, max(0, scheme_end - 5), scheme_end) else None
        if stop[0].upper() != spelling.colon:
            return None
        begin = stop.end()
        first = self._at.after(begin)
        if first >= end:
            return self._with_blanks(begin, end) if spelling is _PLAIN else None
        authority = self._authority_end(begin, end) if spelling is _PLAIN else end
        if authority < first:  # a password that was not escaped
            authority = end
        sign = "@" if spelling is _PLAIN else "%40"
        return begin, text.rfind(sign, first, authority)  # the last: a password may have some, a host has none

    def _with_blanks(self, begin: int, end: int) -> tuple[int, int] | None:
        """A password with blanks in it, which no URL may have and people write all the same; what is a port is none."""
        if _PORTS.fullmatch(self._text, begin, self._authority_end(begin, end)):
            return None
        at = self._at.after(begin)
        return (begin, at) if at < self._line.after(begin) else None

    def _authority_end(self, begin: int, end: int) -> int:
        path = _PATH.search(self._text, begin, end)
        return path.start() if path is not None else end
