"""Tenancy: of which class a tenant is, for the figures; they tell classes apart, never tenants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from posthouse.errors import ConfigurationError

TENANTS = "MELMASTOON_TENANTS"
"""The variable in the environment: `serena=large,caravan=medium`. Whoever is not in it is small."""

TenantClass = Literal["small", "medium", "large", "platform"]
CLASSES: tuple[TenantClass, ...] = get_args(TenantClass)


def tenant_class(tenant: str) -> str:
    """The class of a tenant."""
    return _KNOWN.get(tenant, "small")


def classes(text: str) -> Mapping[str, str]:
    """By tenant, as the environment says it. ConfigurationError for what is no class."""
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    wrong = [
        f"{TENANTS}: {name}{mark}{word}: a class is {', '.join(CLASSES)}"
        for name, mark, word in pairs
        if word not in CLASSES
    ]
    if wrong:
        raise ConfigurationError(*wrong)
    return {"platform": "platform", **{name: word for name, _, word in pairs}}


_KNOWN = classes(os.environ.get(TENANTS, ""))
