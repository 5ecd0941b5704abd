"""Rule: a small function from what is known about services to what is wrong with them, and its reasons in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity

Look = Callable[[Facts], Iterable[Found]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is stable between releases. `title` says what is found, `why` what it leads to, `fix` what to do instead; `sees`
    how it is recognised, and what is not seen. `seeds` cites where the rule comes from."""

    id: str
    severity: Severity
    title: str
    sees: str
    why: str
    fix: str
    seeds: str
    look: Look
