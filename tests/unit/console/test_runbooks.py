"""The runbooks, as the console has them."""

from __future__ import annotations

import pytest

from posthouse.console.asking import Refusal
from posthouse.console.estate import Estate
from posthouse.watch.alerts import runbooks
from tests.kit.console import Asking


async def test_every_runbook_that_is_shipped_is_a_page_with_its_title() -> None:
    asking = Asking(Estate())
    listed = await asking.get("/runbooks")
    assert {f"{one['page']}.md" for one in listed["pages"]} | {"README.md"} == set(runbooks())
    for one in listed["pages"]:
        page = await asking.get("/runbooks/{page}", page=one["page"])
        assert page["title"] == one["title"]
        assert page["text"].startswith(f"# {one['title']}")


async def test_a_page_that_is_none_is_refused_with_one_that_is() -> None:
    with pytest.raises(Refusal, match="dead-letters") as refused:
        await Asking(Estate()).get("/runbooks/{page}", page="dead-leters")
    assert refused.value.status == 404
