"""theme-config-service: how a tenant's booking site looks."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

theme = service("theme", owner="sites")


@theme.event("preset.published.v1", key="preset_id", retention="warm", idempotency="required")
class PresetPublished(Payload):
    """A design can be chosen, in this revision."""

    preset_id: str
    name: str
    revision: int


@theme.event("tokens.changed.v1", key="brand_id", retention="warm", idempotency="required")
class TokensChanged(Payload):
    """Colours and type of a brand are others."""

    brand_id: str
    preset_id: str
    primary_colour: str
    accent_colour: str
    font: str
    revision: int


@theme.event("content_block.changed.v1", key="block_id", retention="warm", idempotency="required")
class ContentBlockChanged(Payload):
    """A text of the site is another one. It is fetched by its hash: sites keep what they have until then."""

    block_id: str
    page: Literal["home", "rooms", "booking", "contact"]
    locale: str
    content_hash: str
    revision: int
