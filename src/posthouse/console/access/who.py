"""Who: a person at the console, with roles, tenants, and the right to see payloads."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["reader", "operator", "replayer", "admin"]
"""reader: looks. operator: decides about held and refused events, sagas, timers, schedules. replayer: lets events be read or sent again
(seek, resend, rebuild). admin: all of it."""

INCLUDES: dict[Role, frozenset[Role]] = {
    "reader": frozenset(("reader",)),
    "operator": frozenset(("reader", "operator")),
    "replayer": frozenset(("reader", "replayer")),
    "admin": frozenset(("reader", "operator", "replayer", "admin")),
}


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """`tenants` are those that they may see, None for all; `payloads` is a right of its own, whatever the roles are; `until` is when
    the roles end, in seconds since 1970."""

    name: str
    roles: frozenset[Role]
    tenants: frozenset[str] | None = None
    payloads: bool = False
    until: float | None = None

    def may(self, role: Role) -> bool:
        """Whether one of the roles includes this one."""
        return any(role in INCLUDES[mine] for mine in self.roles)

    def sees(self, tenant: str) -> bool:
        """Whether things of this tenant are shown."""
        return self.tenants is None or tenant in self.tenants
