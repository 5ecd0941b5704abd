"""Users: what a server tells a user of himself."""

from __future__ import annotations

import msgspec

WHO = "$SYS.REQ.USER.INFO"


class Subjects(msgspec.Struct):
    """Allowed, all where none is named; and denied of those."""

    allow: list[str] = []
    deny: list[str] = []


class Permissions(msgspec.Struct):
    publish: Subjects = msgspec.field(default_factory=Subjects)
    subscribe: Subjects = msgspec.field(default_factory=Subjects)


class UserInfo(msgspec.Struct):
    """Who we are. No permissions: whoever has none in the configuration may do everything. `told`: unless another server of the cluster
    answered, which before 2.12 knows nobody's."""

    user: str = ""
    account: str = ""
    permissions: Permissions | None = None
    told: bool = False


class Server(msgspec.Struct):
    id: str = ""


class Said(msgspec.Struct):
    """The answer of a server."""

    server: Server
    data: UserInfo
