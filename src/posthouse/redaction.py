"""Redaction: what may be shown of a text that leaves the process. Logs, errors, dead letters, checks and traces all pass here.

A secret is known by where it stands: behind the user of a URL, after the name of an option that holds one, in an
`Authorization` header, in a private key. What databases and their libraries quote of the values that they were given is none
of a log's business either. Too much is hidden rather than too little, and a hostile text costs its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HIDDEN = "…"

MOST_WORDS = 2_000
"""Characters of an error's words that are kept."""

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
_PORTS = re.compile(r"\d*(?:,[\w.\[\]:-]*)?[\"')\]}>.,;]*")
_PATH = re.compile("[/?#]")
_LINE = re.compile(r"[^\n]*")
_WORD = re.compile(r"[^=:,%\s]*")
"""Every place where a secret may stand has one of these beside it: most ids, names and subjects have none."""

_NAME = (
    r"(?:password|passwd|passphrase|\bpass|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key\.pem"
    r"|keystore\.(?:key|location\.pem)|jaas\.config|oauthbearer\.config)(?:[_.-](?:access[_-])?(?:key|id|stdin|value))*"
)
_VALUE = r"""(?:b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\"|[^\s&]+)"""

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
    (re.compile(r"\b(authorization\\?[\"']?\s*[:=,]\s*[\"']?(?:\w+\s+)?)[^\s\"']+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1\2{HIDDEN}"),
    (
        re.compile(rf"({_NAME}\\?(?:[\"']\s*,|[\"']?\s*(?:=>?|:(?!/)|%3D|%3A))\s*){_VALUE}", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
)


def redacted(text: str) -> str:
    """The text without its secrets. One that has none comes back as it is."""
    if _WORD.fullmatch(text):
        return text
    for spelling in (_PLAIN, _ENCODED):
        text = _without_users(text, spelling)
    for pattern, shown in _STEPS:
        text = pattern.sub(shown, text)
    return text


def words_of(error: BaseException) -> str:
    """What an error says, as text that every log and database takes, whatever the error is made of."""
    try:
        text = str(error)
    except Exception:
        text = "(it cannot be put into words)"
    return storable(redacted(text)[:MOST_WORDS])


def storable(text: str) -> str:
    """Text without NUL characters and halves of surrogate pairs, which databases and wires refuse."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")


def _without_users(text: str, spelling: _Spelling) -> str:
    """Hide the password of each URL, or the token that is its user."""
    ats = [found.start() for found in spelling.at.finditer(text)]
    if not ats:
        return text
    pieces: list[str] = []
    done = end = 0
    for mark in spelling.mark.finditer(text):
        start = mark.end()
        if start < done or start > ats[-1]:
            continue
        if start >= end:
            found = spelling.end.search(text, start)
            end = found.start() if found else len(text)
        hidden = _secret(text, mark.start(), start, end, spelling)
        if hidden is not None:
            pieces += (text[done : hidden[0]], HIDDEN)
            done = hidden[1]
    return "".join((*pieces, text[done:]))


def _secret(text: str, scheme_end: int, start: int, end: int, spelling: _Spelling) -> tuple[int, int] | None:
    """From where to where the secret of a URL stands whose authority begins at `start`, in a word that ends at `end`."""
    stop = spelling.stop.search(text, start, end)
    if stop is None:
        return None
    if spelling.at.fullmatch(stop[0]):
        return (start, stop.start()) if text.endswith(TOKENS, max(0, scheme_end - 5), scheme_end) else None
    if stop[0].upper() != spelling.colon:
        return None
    begin = stop.end()
    first = spelling.at.search(text, begin, end)
    if first is None:
        return _with_blanks(text, begin, end) if spelling is _PLAIN else None
    authority = _authority_end(text, begin, end) if spelling is _PLAIN else end
    if authority < first.start():  # a password that was not escaped
        authority = end
    return begin, _last(text, first.start(), authority, spelling)


def _last(text: str, first: int, end: int, spelling: _Spelling) -> int:
    """Where the last `@` before the end is: a password may have some, a host has none."""
    sign = text[first : first + (1 if spelling is _PLAIN else 3)]
    return max(text.rfind(sign, first, end), text.rfind(sign.lower(), first, end))


def _with_blanks(text: str, begin: int, end: int) -> tuple[int, int] | None:
    """A password with blanks in it, which no URL may have and people write all the same; what is a port is none."""
    if _PORTS.fullmatch(text, begin, _authority_end(text, begin, end)):
        return None
    line = _LINE.match(text, begin)
    at = text.find("@", begin, line.end() if line else end)
    return (begin, at) if at >= 0 else None


def _authority_end(text: str, begin: int, end: int) -> int:
    path = _PATH.search(text, begin, end)
    return path.start() if path is not None else end
