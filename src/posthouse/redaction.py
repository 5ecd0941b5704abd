"""Redaction: what may be shown of a text that leaves the process. Logs, errors, dead letters, checks and traces all pass here.

A secret is known by where it stands: behind the user of a URL, after the name of an option that holds one, in an
`Authorization` header, in a private key. Too much is hidden rather than too little.
"""

from __future__ import annotations

import re

HIDDEN = "…"
# Lengths have bounds, so that a hostile text costs its length and no more than a constant beside it.

_NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key\.pem"
    r"|keystore\.(?:key|location\.pem)|jaas\.config|oauthbearer\.config)(?:[_.-](?:access[_-])?(?:key|id|stdin|value))*"
)
_VALUE = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\"|[^\s&]+)"""

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    # A URL as it should be; one whose password has a `/` or an `@` that should have been escaped; one that is a value in
    # another URL; and, where there is no password, a user who is a token.
    (re.compile(r"(://[^\s/?#:@'\"]{0,200}):[^\s/?#@'\"]{1,500}@"), rf"\1:{HIDDEN}@"),
    (re.compile(rf"(://[^\s/?#:@'\"]{{0,200}}):(?!{HIDDEN}@)[^\s'\"]{{0,500}}@"), rf"\1:{HIDDEN}@"),
    (
        re.compile(r"(%3A%2F%2F(?:(?!%3A|%40|%2F)[^\s&]){0,200}?%3A)(?:(?!%40)[^\s&]){1,500}%40", re.IGNORECASE),
        rf"\1{HIDDEN}%40",
    ),
    (re.compile(r"\b((?:nats|tls|wss?|https?)://)[^\s/?#:@'\"]{1,500}@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1\2{HIDDEN}"),
    (re.compile(rf"({_NAME}\\?[\"']?\s*(?:=>?|:(?!/)|%3D|%3A)\s*){_VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
)


def redacted(text: str) -> str:
    """The text without its secrets. One that has none comes back as it is."""
    for pattern, shown in _STEPS:
        text = pattern.sub(shown, text)
    return text
