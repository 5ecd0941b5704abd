"""Redis 7: users of an ACL file."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.trust.rights.account import Account, Files

READS = (
    "auth", "client", "discard", "eval", "evalsha", "exec", "exists", "hdel", "hello", "hexists", "hget", "hgetall", "hincrby",
    "hmget", "hset", "hsetnx", "info", "multi", "ping", "time", "type", "unwatch", "watch", "xack", "xgroup", "xinfo", "xlen",
    "xpending", "xrange", "xread", "xreadgroup", "xrevrange",
)  # fmt: skip
WRITES = ("eval", "evalsha", "xadd", "xtrim")


def rules(account: Account) -> list[str]:
    """The rules of a user, but for its password. The scripts of the adapter touch the streams that they read, so that Redis knows no
    reader of a stream by its keys: who adds to one is told by the command, which a selector allows for some keys alone."""
    own = [key for topic in account.published for key in (topic, f"{topic}:*")]
    if account.foreign:
        return ["on", "resetkeys", "-@all", "+auth", "+hello", "+ping", "+client", f"(+xadd {_keys(own)})"]
    groups = [*account.places]
    keys = [
        key
        for topic in sorted({*account.published, *account.read})
        for key in (topic, f"{topic}:*", f"posthouse:topic:{topic}")
    ]
    keys += [f"posthouse:group:{group}:{topic}" for group, topic in groups]
    bells = [f"posthouse:bell:{group}" for group in account.reads]
    for model, topics in account.models.items():
        keys += [f"posthouse:group:{model}.g[0-9]*:{topic}" for topic in topics]
        bells.append(f"posthouse:bell:{model}.g[0-9]*")
    allowed = " ".join(f"+{command}" for command in READS)
    adding = " ".join(f"+{command}" for command in WRITES)
    ledgers = [key for key in keys if key.startswith("posthouse:group:")]
    return [
        "on", "resetkeys", "resetchannels", "-@all", allowed, _keys([*keys, *bells]), f"({adding} {_keys([*own, *bells, *ledgers])})",
    ]  # fmt: skip


def redis(accounts: Sequence[Account]) -> Files:
    lines = [f"user {account.name} {' '.join(rules(account))} #<SHA-256 of its password>" for account in accounts]
    return {"users.acl": "\n".join(lines) + "\n"}


def _keys(keys: Sequence[str]) -> str:
    return " ".join(f"~{key}" for key in dict.fromkeys(keys))
