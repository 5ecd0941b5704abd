"""The masters that are known, by the beginning of their names."""

from __future__ import annotations

from importlib import import_module

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.trust.secrets.master import Master

KINDS = {
    "file": ("local", "secrets"),
    "env": ("local", "secrets"),
    "aws-kms": ("aws_kms", "aws-kms"),
    "gcp-kms": ("gcp_kms", "gcp-kms"),
}
"""The module of each, and the extra that brings its library."""


def check_master(name: str) -> list[str]:
    """Why a name is no master's, one sentence each."""
    kind, colon, rest = name.partition(":")
    if kind in KINDS and rest:
        return []
    hint = did_you_mean(kind, KINDS) if colon else ""
    return [
        f"master={kind!r}… names no master key.{hint} Write file:master.key, env:NAME, aws-kms:alias/NAME or gcp-kms:projects/…/cryptoKeys/NAME"
    ]


def open_master(name: str, patience: float) -> Master:
    """The master key of a name; nothing is connected by that. `patience`: seconds that one question may take."""
    kind, _, rest = name.partition(":")
    module, extra = KINDS[kind]
    try:
        opener = import_module(f"posthouse.trust.secrets.masters.{module}").open_at
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the master key {kind}: needs {error.name}: pip install 'posthouse[{extra}]'"
        ) from error
    master: Master = opener(kind, rest, patience)
    return master
