"""How exchanges and queues differ from what we would make. Pure: what the server says in, differences out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from posthouse.survey import Drift

ANEW = "it stays for life: delete it when it is empty and nobody publishes, and let ensure() make it anew"
HARMFUL = (
    *("delivery-limit", "dead-letter-exchange", "expires", "max-length", "max-length-bytes", "message-ttl", "overflow"),
    *("max-priority",),
)
"""Settings that take frames away or change their order: as arguments they begin with `x-`, in policies they do not."""
RELEVANT = {"x-queue-type", "x-single-active-consumer", *(f"x-{name}" for name in HARMFUL)}
HIDDEN = Drift(
    setting="settings",
    found="hidden",
    wanted="to be compared",
    repairable=False,
    fix="grant this user `configure` on it, so that the server compares it",
)
_words = re.compile(
    r"inequivalent arg '(?P<setting>[^']+)'.*?: received (?:the value )?(?P<wanted>'[^']*'|\S+).*? but current is "
    r"(?:the value )?(?P<found>'[^']*'|\S+)"
)


def said(words: str) -> Drift:
    """The server's own words when it compared something with what we would make; it names the first difference only."""
    heard = _words.search(words)
    if heard is None:
        return Drift(setting="settings", found=words, wanted="as ensure() makes them", repairable=False, fix=ANEW)
    found, wanted = (heard[name].strip("'") for name in ("found", "wanted"))
    return Drift(setting=heard["setting"], found=found, wanted=wanted, repairable=False, fix=ANEW)


def argument_drift(found: Mapping[str, object], wanted: Mapping[str, object]) -> list[Drift]:
    """Of those arguments that we give, or that the promise rests on; others may be anything."""
    return [
        Drift(setting=name, found=shown(found.get(name)), wanted=shown(wanted.get(name)), repairable=False, fix=ANEW)
        for name in sorted({*wanted, *(RELEVANT & found.keys())})
        if found.get(name) != wanted.get(name)
    ]


def policy_drift(policy: str | None, definition: object) -> list[Drift]:
    """What a policy does to a queue of ours. It is somebody else's, and so is the mending."""
    fix = f"take it out of the policy {policy!r}, or let its pattern pass by these queues"
    given = definition if isinstance(definition, dict) else {}
    return [
        Drift(setting=f"policy {name}", found=shown(given[name]), wanted="none", repairable=False, fix=fix)
        for name in HARMFUL
        if name in given
    ]


def missing(setting: str, found: str = "missing", wanted: str = "there") -> Drift:
    """What can be made again."""
    return Drift(setting=setting, found=found, wanted=wanted)


def once(drift: Iterable[Drift]) -> list[Drift]:
    """The same difference of several queues is told once."""
    return list({(each.setting, each.found, each.wanted): each for each in drift}.values())


def shown(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
