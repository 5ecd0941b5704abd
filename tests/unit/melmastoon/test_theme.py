"""theme-config-service: presets, brands, texts."""

from __future__ import annotations

import hashlib

import pytest

from melmastoon.facts.theme import ContentBlockChanged, PresetPublished, TokensChanged
from melmastoon.theme import theme
from melmastoon.theme.commands import Brand, change_content, change_tokens, publish_preset
from posthouse import Reject
from posthouse.testing import Harness

BRAND = Brand(preset_id="calm", primary_colour="#102030", accent_colour="#a0b0c0", font="Vazirmatn")


async def test_a_preset_is_published_in_revisions() -> None:
    async with Harness(theme) as house:
        for name, changed in (("Calm", True), ("Calm", False), ("Calm II", True)):
            async with theme.transaction("t1") as tx:
                assert await publish_preset(tx, "calm", name=name) is changed
        await house.settled()
        published = [(e.data.name, e.data.revision) for e in await house.published(PresetPublished)]
        assert published == [("Calm", 1), ("Calm II", 2)]


async def test_tokens_change_in_revisions_and_the_same_again_is_no_change() -> None:
    async with Harness(theme) as house:
        async with theme.transaction("t1") as tx:
            await publish_preset(tx, "calm", name="Calm")
            assert await change_tokens(tx, "main", BRAND)
            assert not await change_tokens(tx, "main", BRAND)
            assert await change_tokens(
                tx,
                "main",
                Brand(preset_id="calm", primary_colour="#102030", accent_colour="#ffffff", font="Vazirmatn"),
            )
        await house.settled()
        changes = [(e.data.accent_colour, e.data.revision) for e in await house.published(TokensChanged)]
        assert changes == [("#a0b0c0", 1), ("#ffffff", 2)]


async def test_a_colour_that_is_none_and_a_preset_that_is_not_there_are_refused() -> None:
    async with Harness(theme), theme.transaction("t1") as tx:
        with pytest.raises(Reject, match="no preset calm"):
            await change_tokens(tx, "main", BRAND)
        await publish_preset(tx, "calm", name="Calm")
        with pytest.raises(Reject, match="'red' is not a colour"):
            await change_tokens(
                tx, "main", Brand(preset_id="calm", primary_colour="red", accent_colour="#ffffff", font="A")
            )


async def test_a_text_is_said_by_its_hash() -> None:
    async with Harness(theme) as house:
        for text, changed in (("Welcome", True), ("Welcome", False), ("Come in", True)):
            async with theme.transaction("t1") as tx:
                assert await change_content(tx, "hero", text, page="home", locale="en") is changed
        await house.settled()
        changes = [(e.data.content_hash, e.data.revision) for e in await house.published(ContentBlockChanged)]
        assert changes == [
            (f"sha256-{hashlib.sha256(b'Welcome').hexdigest()}", 1),
            (f"sha256-{hashlib.sha256(b'Come in').hexdigest()}", 2),
        ]
