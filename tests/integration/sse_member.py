"""A server of events, to be killed: the recipe of docs/sse.md, served by uvicorn on a port; or its stream alone, of what others write."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import uvicorn

from posthouse.edges.sse import sse_endpoint

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "sse" / "app.py"


def recipe() -> ModuleType:
    """The recipe, imported anew."""
    spec = importlib.util.spec_from_file_location("sse_recipe", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["sse_recipe"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    module = recipe()
    alone = sse_endpoint(
        module.rooms, events=[module.RoomMarked], tenant=module.tenant_of, show=lambda event: event.data
    )
    uvicorn.run(alone if sys.argv[2:] == ["alone"] else module.app, port=int(sys.argv[1]), log_level="warning")
