"""NATS: users with permissions, for `include` in an account of the server's configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from posthouse.trust.rights.account import Account, Files

GENERATIONS = 50
"""A subject has no wildcard inside a word, so of read models so many generations are named."""
GROUPS = "posthouse_groups"
WHO = "$SYS.REQ.USER.INFO"
"""Where a user asks what he himself may do: `doctor` does."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def nats(accounts: Sequence[Account]) -> Files:
    text = "".join(_user(account) for account in accounts)
    head = (
        "# Made from the catalogue: include it in an account, as in accounts { SHOP { jetstream: enabled, include 'rights.conf' } }.\n"
        "# Say each password in the environment of the server. A service names its inbox in its URL: nats://…?inbox=_INBOX_<user>\n"
    )
    return {"rights.conf": f"{head}users: [\n{text}]\n"}


def inbox_of(account: str) -> str:
    """Where an account hears answers: whoever could listen to another's would read what it fetches."""
    return f"_INBOX_{word(account)}"


def permissions(account: Account) -> tuple[list[str], list[str]]:
    """The subjects that an account may publish to, and those that it may subscribe to."""
    groups = [*account.reads, *(f"{model}.g{n}" for model in account.models for n in range(1, GENERATIONS + 1))]
    said = [subject for topic in account.published for subject in (topic, f"{topic}.*")]
    if account.foreign:
        return said, [f"{inbox_of(account.name)}.>"]
    made = [GROUPS, *(stream_of(topic) for topic in account.published)]
    known = sorted({*made, *(stream_of(topic) for topic in account.read)})
    said += [f"$JS.API.STREAM.INFO.{stream}" for stream in known]
    said += [f"$JS.API.STREAM.CREATE.{stream}" for stream in made]
    said += [f"$JS.API.DIRECT.GET.{stream}" for stream in known]
    for topic in account.read:
        stream = stream_of(topic)
        said += [f"$JS.API.CONSUMER.CREATE.{stream}.*.{topic}", f"$JS.API.CONSUMER.CREATE.{stream}.*.{topic}.*"]
        said += [f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*", f"$JS.API.CONSUMER.DELETE.{stream}.*"]
    said += [f"posthouse-groups.{word(group)}.>" for group in groups]
    said.append(WHO)
    hints = [f"posthouse-groups-hint.{word(group)}" for group in groups]
    return [*said, *hints], [f"{inbox_of(account.name)}.>", *hints]


def stream_of(topic: str) -> str:
    return topic.replace(".", "_")


def word(text: str) -> str:
    """Any text as one word of a subject."""
    return "".join(c if _PLAIN.fullmatch(c) else "".join(f"={byte:02X}" for byte in c.encode()) for c in text)


def _user(account: Account) -> str:
    said, heard = permissions(account)
    password = "NATS_PASSWORD_" + re.sub(r"[^A-Z0-9]", "_", account.name.upper())
    return (
        f"  {{\n    user: {_quoted(account.name)}, password: ${password}\n    permissions: {{\n"
        f"      publish: {{ allow: {_list(said)} }}\n      subscribe: {{ allow: {_list(heard)} }}\n    }}\n  }}\n"
    )


def _list(subjects: Iterable[str]) -> str:
    return "[\n" + "".join(f"        {_quoted(one)}\n" for one in subjects) + "      ]"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
