"""Kafka: ACLs, as values and as calls of `kafka-acls.sh`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from posthouse.trust.rights.account import Account, Files

MADE = ("Create", "Describe", "DescribeConfigs", "Write")
READ = ("Describe", "DescribeConfigs", "Read")
GROUP = ("Delete", "Describe", "Read")


class Acl(NamedTuple):
    """One right. `kind` is topic or group, `pattern` literal or prefixed."""

    kind: str
    name: str
    pattern: str
    principal: str
    operation: str


def acls(account: Account) -> list[Acl]:
    """Every right that an account needs, and no other. A group keeps a register beside itself, and read models have a group for each
    generation: all begin with the name of their service or consumer and a dot."""
    principal = f"User:{account.name}"
    rights: list[tuple[str, str, str, tuple[str, ...]]] = [
        ("topic", topic, "literal", MADE) for topic in account.published
    ]
    rights += [("topic", topic, "literal", READ) for topic in account.read]
    for group in account.reads:
        rights += [("group", group, "literal", GROUP), ("group", f"{group}.posthouse", "literal", GROUP)]
    rights += [("group", f"{model}.g", "prefixed", GROUP) for model in account.models]
    return sorted(
        {Acl(kind, name, how, principal, one) for kind, name, how, operations in rights for one in operations}
    )


def kafka(accounts: Sequence[Account]) -> Files:
    lines = [
        "#!/bin/sh",
        "# Made from the catalogue. Usage: sh kafka-acls.sh BOOTSTRAP [--command-config FILE]",
        "set -e",
    ]
    lines += [line for account in accounts for line in _calls(account)]
    return {"kafka-acls.sh": "\n".join(lines) + "\n"}


def _calls(account: Account) -> Iterator[str]:
    for (kind, name, pattern, principal), same in groupby(acls(account), key=lambda acl: acl[:4]):
        operations = " ".join(f"--operation {acl.operation}" for acl in same)
        yield (
            'kafka-acls.sh --bootstrap-server "$@" --add '
            f"--allow-principal {shlex.quote(principal)} {operations} --{kind} {shlex.quote(name)} --resource-pattern-type {pattern}"
        )
