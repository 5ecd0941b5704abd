"""What theme-config-service can be asked to do. Each answers whether anything changed: the same again changes nothing."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from melmastoon.facts.theme import ContentBlockChanged, PresetPublished, TokensChanged
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

PRESET = "SELECT name, revision FROM theme_preset WHERE tenant = ? AND preset_id = ? FOR UPDATE"
NEW_PRESET = """INSERT INTO theme_preset (tenant, preset_id, name, revision) VALUES (?, ?, ?, 1)
    ON CONFLICT (tenant, preset_id) DO UPDATE SET name = excluded.name, revision = theme_preset.revision + 1
    RETURNING revision"""
BRAND = """SELECT preset_id, primary_colour, accent_colour, font FROM theme_brand
    WHERE tenant = ? AND brand_id = ? FOR UPDATE"""
NEW_BRAND = """INSERT INTO theme_brand (tenant, brand_id, preset_id, primary_colour, accent_colour, font, revision)
    VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT (tenant, brand_id) DO UPDATE SET preset_id = excluded.preset_id,
    primary_colour = excluded.primary_colour, accent_colour = excluded.accent_colour, font = excluded.font,
    revision = theme_brand.revision + 1 RETURNING revision"""
BLOCK = "SELECT page, locale, content_hash FROM theme_block WHERE tenant = ? AND block_id = ? FOR UPDATE"
NEW_BLOCK = """INSERT INTO theme_block (tenant, block_id, page, locale, content, content_hash, revision)
    VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT (tenant, block_id) DO UPDATE SET page = excluded.page,
    locale = excluded.locale, content = excluded.content, content_hash = excluded.content_hash,
    revision = theme_block.revision + 1 RETURNING revision"""

COLOUR = re.compile(r"#[0-9a-f]{6}")


class Brand(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How a brand looks: its preset, and where it differs."""

    preset_id: str
    primary_colour: str
    accent_colour: str
    font: str


async def publish_preset(tx: Tx, preset_id: str, *, name: str) -> bool:
    """Let a design be chosen; again when it has another name."""
    found = typed(await run(tx, PRESET, tx.tenant, preset_id), tuple[str, int])
    if found and found[0][0] == name:
        return False
    [(revision,)] = typed(await run(tx, NEW_PRESET, tx.tenant, preset_id, name), tuple[int])
    published = PresetPublished(preset_id=preset_id, name=name, revision=revision)
    tx.publish(published, idempotency_key=f"theme:preset:{preset_id}:{revision}")
    return True


async def change_tokens(tx: Tx, brand_id: str, brand: Brand) -> bool:
    """Give a brand other colours or another type."""
    wrong = [colour for colour in (brand.primary_colour, brand.accent_colour) if not COLOUR.fullmatch(colour)]
    if wrong:
        raise Reject(f"{wrong[0]!r} is not a colour: write it as '#1a2b3c'")
    if not await run(tx, PRESET, tx.tenant, brand.preset_id):
        raise Reject(f"there is no preset {brand.preset_id} in this tenant: publish it first")
    if typed(await run(tx, BRAND, tx.tenant, brand_id), Brand) == [brand]:
        return False
    values = msgspec.structs.astuple(brand)
    [(revision,)] = typed(await run(tx, NEW_BRAND, tx.tenant, brand_id, *values), tuple[int])
    changed = TokensChanged(brand_id=brand_id, **msgspec.structs.asdict(brand), revision=revision)
    tx.publish(changed, idempotency_key=f"theme:tokens:{brand_id}:{revision}")
    return True


async def change_content(
    tx: Tx, block_id: str, content: str, *, page: Literal["home", "rooms", "booking", "contact"], locale: str
) -> bool:
    """Write another text into a page."""
    content_hash = f"sha256-{hashlib.sha256(content.encode()).hexdigest()}"
    found = typed(await run(tx, BLOCK, tx.tenant, block_id), tuple[str, str, str])
    if found == [(page, locale, content_hash)]:
        return False
    values = (tx.tenant, block_id, page, locale, content, content_hash)
    [(revision,)] = typed(await run(tx, NEW_BLOCK, *values), tuple[int])
    changed = ContentBlockChanged(
        block_id=block_id, page=page, locale=locale, content_hash=content_hash, revision=revision
    )
    tx.publish(changed, idempotency_key=f"theme:content:{block_id}:{revision}")
    return True
