"""What psycopg and psycopg2 have in common: their parameters are written `%(name)s`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

PARAMETER = re.compile(r"\$(\d+)")


@functools.lru_cache(maxsize=256)
def by_name(sql: str) -> str:
    """A statement of ours in that style; a parameter that stands twice is still one."""
    return PARAMETER.sub(r"%(p\1)s", sql.replace("%", "%%"))


def named(parameters: Sequence[object]) -> Mapping[str, object]:
    """Its parameters. A tuple is an array for asyncpg and a row for psycopg: a list is an array for both."""
    return {
        f"p{number}": list(value) if isinstance(value, tuple) else value for number, value in enumerate(parameters, 1)
    }
