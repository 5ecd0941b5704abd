"""Roles: what an issuer says of a person, and what that lets them do here. A TOML file of rules, or a function."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from posthouse.console.access.sessions import Claims
from posthouse.console.access.who import INCLUDES, Role, Who
from posthouse.errors import ConfigurationError, did_you_mean

log = logging.getLogger("posthouse.console.access")

RoleFunction = Callable[[Claims], Who | None]
"""Called for every request, so that a right that is taken away is gone at once: answer from memory. None for nobody."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fits somebody in one of `groups`, one of `people` by their verified e-mail address, or one of `subs` by their `sub`; an
    address is never compared with a `sub`. `until` is a moment, `minutes` are those after the sign-in: a rule that is over fits
    nobody."""

    roles: frozenset[Role]
    groups: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()
    subs: frozenset[str] = frozenset()
    tenants: frozenset[str] | None = None
    payloads: bool = False
    until: datetime | None = None
    minutes: float | None = None


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`groups` names the claim that holds them. The first rule that fits decides alone: rights of two never add up to one
    that nobody wrote."""

    rule: tuple[Rule, ...]
    groups: str = "groups"

    def who(self, claims: Claims, began: float, now: float) -> Who | None:
        if not (name := name_of(claims)):
            return None
        emails, subs = {_email(claims)}, {_text(claims.get("sub"))}
        said = claims.get(self.groups)
        groups = (
            {said}
            if isinstance(said, str)
            else {one for one in said if isinstance(one, str)}
            if isinstance(said, list)
            else set()
        )
        for rule in self.rule:
            end = _end(rule, began)
            fits = rule.people & emails or rule.subs & subs or rule.groups & groups
            if fits and (end is None or now < end):
                return Who(name=name, roles=rule.roles, tenants=rule.tenants, payloads=rule.payloads, until=end)
        return None


class RolesFile:
    """The rules of a file, read again when it changed. One that cannot be read any more leaves the last ones in force. Without
    `sign_ins`, `minutes` after one are refused: they would never end."""

    def __init__(self, path: Path, *, sign_ins: bool = True) -> None:
        self._path, self._sign_ins = path, sign_ins
        self._stamp = self._changed()
        self.rules = self._read()

    def who(self, claims: Claims, began: float, now: float) -> Who | None:
        try:
            if (stamp := self._changed()) != self._stamp:
                self._stamp = stamp
                self.rules = self._read()
        except ConfigurationError as error:
            log.error("the roles are as they were before the file changed: %s", error)
        return self.rules.who(claims, began, now)

    def _read(self) -> Rules:
        rules = read_rules(self._path)
        if not self._sign_ins and any(rule.minutes is not None for rule in rules.rule):
            raise ConfigurationError(
                f"{self._path}: `minutes` are those after a sign-in, and here is none, as a proxy or a token signs each request: say `until`"
            )
        return rules

    def _changed(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise ConfigurationError(f"{self._path}: the roles cannot be read: {error.strerror}") from error
        return found.st_mtime_ns, found.st_size


def name_of(claims: Claims) -> str:
    """What somebody is called in the operators' log: their verified e-mail address, else their `sub`, which is marked where it
    looks like an address; empty for nobody."""
    sub = _text(claims.get("sub"))
    return _email(claims) or (f"sub:{sub}" if "@" in sub else sub)


def _email(claims: Claims) -> str:
    """Only where the issuer says that it is verified: one of which nothing is said may be what the person wrote themselves."""
    said = claims.get("email_verified")
    email = _text(claims.get("email"))
    return email if (said is True or said == "true") and "@" in email else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""


def read_rules(path: Path) -> Rules:
    """ConfigurationError with what to write instead."""
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: the roles cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: this is no TOML: {error}") from error
    try:
        rules = msgspec.convert(said, Rules)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {error}{_meant(said)}") from error
    if problems := [
        f"{path}: rule {number} {problem}" for number, rule in enumerate(rules.rule, 1) if (problem := _problem(rule))
    ]:
        raise ConfigurationError(*problems)
    return rules


def _problem(rule: Rule) -> str:
    if not rule.groups and not rule.people and not rule.subs:
        return "fits nobody: say groups = […], people = […] or subs = […]"
    if wrong := sorted(person for person in rule.people if "@" not in person):
        return f"has {wrong[0]!r} in people, which is no e-mail address: say subs = [{wrong[0]!r}] if the issuer's `sub` is meant"
    if "" in rule.subs:
        return "has an empty text in subs: say the `sub` of somebody"
    if not rule.roles:
        return 'gives no role: say roles = ["reader"]'
    if rule.tenants is not None and not rule.tenants:
        return "shows no tenant: leave tenants out for all of them, or name some"
    if rule.until is not None and rule.until.tzinfo is None:
        return "has an `until` without a zone: write 2026-11-17T18:00:00Z"
    if rule.minutes is not None and rule.minutes <= 0:
        return "ends before it begins: minutes is above 0"
    return ""


def _meant(said: dict[str, object]) -> str:
    """What was perhaps meant by a name that there is not."""
    found = said.get("rule")
    rules = [rule for rule in found if isinstance(rule, dict)] if isinstance(found, list) else []
    for word in (word for rule in rules for word in rule if word not in Rule.__struct_fields__):
        return did_you_mean(word, Rule.__struct_fields__)
    for role in (role for rule in rules for role in rule.get("roles", ()) if role not in INCLUDES):
        return did_you_mean(str(role), INCLUDES)
    return ""


def _end(rule: Rule, began: float) -> float | None:
    ends = [rule.until.timestamp()] if rule.until else []
    if rule.minutes is not None:
        ends.append(began + 60 * rule.minutes)
    return min(ends, default=None)
