"""Names that are safe everywhere: as keys of documents, in references, and as folders."""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST = 200

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_OTHER = re.compile(r"[^A-Za-z0-9._-]")


def safe(name: str) -> str:
    """The name itself where it is letters, digits, dots, hyphens and underscores. Any other gets a mark, so that no two
    names become the same."""
    if _PLAIN.fullmatch(name) and len(name) <= LONGEST:
        return name
    mark = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    words = _OTHER.sub("_", name)[: LONGEST - 10].lstrip(".-")
    return f"{words}-{mark}" if words else mark
