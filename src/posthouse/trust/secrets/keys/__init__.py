"""The key stores that are known, by the scheme of their URL."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.redaction import redacted
from posthouse.trust.secrets.keystore import KeyStore

SCHEMES = {"sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres"}


def check_keys(url: str) -> list[str]:
    """Why a URL names no key store, one sentence each."""
    scheme = urlsplit(url).scheme
    if scheme in SCHEMES:
        return []
    hint = did_you_mean(scheme, SCHEMES) if scheme else " Write sqlite:///keys.db or postgresql://…/keys."
    return [f"keys={redacted(url)!r} names no key store.{hint}"]


def open_keys(url: str, patience: float) -> KeyStore:
    """The key store at a URL; nothing is connected by that. `patience`: seconds that one question may take."""
    try:
        module = import_module(f"posthouse.trust.secrets.keys.{SCHEMES[urlsplit(url).scheme]}")
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the key store needs {error.name}: pip install 'posthouse[postgres]'") from error
    store: KeyStore = module.open_at(url, patience)
    return store
