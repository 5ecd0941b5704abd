"""Settings: what a project says about the rules, in `[tool.posthouse.check]` of its pyproject.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.policies.finding import Severity
from posthouse.governance.policies.words import matches

TABLE = "[tool.posthouse.check]"
DAY = 86_400.0


class Allowance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exception that somebody answers for: what `rule` finds at `where`, `*` being anything, for this `reason`."""

    rule: str
    where: str
    reason: str

    def covers(self, rule: str, where: str) -> bool:
        """Whether a finding is meant."""
        return self.rule == rule and matches(where, (self.where,))


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Patterns use `*` for anything. Durations are seconds, sizes bytes."""

    off: tuple[str, ...] = ()
    """Rules that are not asked."""
    severity: Mapping[str, Severity] = {}
    """Another weight for a rule."""
    allow: tuple[Allowance, ...] = ()
    sources: tuple[str, ...] = ()
    """Folders and files whose code is read; without it the packages of the services."""
    platform: tuple[str, ...] = ("*platform.*",)
    """Subjects that may belong to no tenant."""
    cross_tenant: Mapping[str, tuple[str, ...]] = {}
    """Topics that may hold several tenants' facts, each with the services that may read it."""
    not_past: tuple[str, ...] = ()
    """Facts that are not past tense, as `verb` or `aggregate.verb`."""
    ai: tuple[str, ...] = ("ai", "ai_*", "*_ai", "llm", "llm_*", "*_llm", "ml", "ml_*")
    """Services and aggregates whose facts a model made."""
    cold: tuple[str, ...] = ("*.audit.*", "*.lock_integration.*")
    """Subjects that the law wants kept for years, beside those of money and of models."""
    adapters: tuple[str, ...] = ("*adapters.*", "*.adapters", "*_adapter", "*.vendors.*", "*.integrations.*")
    """Modules that may import a vendor's library."""
    vendors: Mapping[str, tuple[str, ...]] = {}
    """More packages of vendors, each with the modules that own it; an empty list means `adapters`."""
    redelivery: float = 7 * DAY
    """How long the broker may bring an event again."""
    payload_limit: int = 256 * 1024
    most_fields: int = 30
    """A payload with more looks like a whole aggregate."""


def settings_of(table: Mapping[str, object], rules: Collection[str]) -> Settings:
    """The settings in a table. Raises ConfigurationError with every problem at once."""
    known = Settings.__struct_fields__
    problems = [f"{TABLE} has no setting {name!r}.{did_you_mean(name, known)}" for name in table if name not in known]
    settings = Settings()
    try:
        settings = msgspec.convert({name: value for name, value in table.items() if name in known}, Settings)
    except msgspec.ValidationError as error:
        problems.append(f"{TABLE}: {error}")
    problems += _unknown_rules(settings, rules)
    problems += [
        f"{TABLE}: allow for {allowance.rule} at {allowance.where!r} gives no reason; say why it is right there"
        for allowance in settings.allow
        if not allowance.reason.strip()
    ]
    if problems:
        raise ConfigurationError(*problems)
    return settings


def _unknown_rules(settings: Settings, rules: Collection[str]) -> list[str]:
    named = [
        *(("off", rule) for rule in settings.off),
        *(("severity", rule) for rule in settings.severity),
        *(("allow", allowance.rule) for allowance in settings.allow),
    ]
    return [
        f"{TABLE}: {where} names {rule!r}, and there is no such rule.{did_you_mean(rule, rules)}"
        for where, rule in named
        if rule not in rules
    ]
