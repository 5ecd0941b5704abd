"""Interface: the files that were built from `console/`, and the page that loads them. Names hold a hash of what is in them."""

from __future__ import annotations

import html
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

BUILT = Path(__file__).parent / "static"
FOREVER = "public, max-age=31536000, immutable"
NOT_BUILT = (
    "The interface is not built. In a checkout: cd console && npm install && npm run build.\n"
    "An installed wheel has it: if it has not, install posthouse again.\n"
)


class Static(StaticFiles):
    """Hashed files, kept by browsers for a year: another build has other names."""

    def __init__(self) -> None:
        super().__init__(directory=BUILT, check_dir=False)

    async def check_config(self) -> None:
        """A folder that is not there has no files, and that is all."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if answer.status_code in (200, 304):
            answer.headers["cache-control"] = FOREVER
        return answer


async def index(request: Request) -> Response:
    """The one page: where it is mounted is written into it. Which of the pages it shows, the browser decides."""
    try:
        text = (BUILT / "index.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        return PlainTextResponse(NOT_BUILT, 503)
    base = html.escape(request.scope.get("root_path", "").rstrip("/"))
    return HTMLResponse(text.replace("@BASE@", base), headers={"cache-control": "no-cache"})
