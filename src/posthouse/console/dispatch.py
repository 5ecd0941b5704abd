"""Dispatch: which page answers a path under /api. A part may hold anything, a slash too, as keys do: it is quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from starlette.types import Scope

from posthouse.console.asking import Page, Refusal
from posthouse.errors import ConfigurationError, did_you_mean


class Paths:
    """Pages by path, as in `/held/{service}/{id}`. What is written out goes before what is in braces."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = sorted(
            ((tuple(path.strip("/").split("/")), page) for path, page in pages.items()),
            key=lambda each: [part.startswith("{") for part in each[0]],
        )

    def find(self, parts: Sequence[str]) -> tuple[Page, dict[str, str]]:
        """The page, and what the path says. Raises Refusal where there is none."""
        for pattern, page in self._pages:
            if len(pattern) == len(parts) and all(
                _braced(wanted) or wanted == given for wanted, given in zip(pattern, parts, strict=True)
            ):
                named = zip(pattern, parts, strict=True)
                return page, {wanted[1:-1]: given for wanted, given in named if _braced(wanted)}
        known = {"/".join(pattern) for pattern, _ in self._pages}
        raise Refusal(404, f"There is nothing at /api/{'/'.join(parts)}.", did_you_mean("/".join(parts), known).strip())


def gathered(*tables: Mapping[str, Page]) -> dict[str, Page]:
    """All pages of some tables. Raises ConfigurationError where two answer the same path."""
    together: dict[str, Page] = {}
    for table in tables:
        for path, page in table.items():
            if path in together:
                raise ConfigurationError(f"two pages answer {path}")
            together[path] = page
    return together


def parts_of(scope: Scope) -> list[str]:
    """The parts of the path after /api/, unquoted each by itself. A server that hands no raw path gives the decoded one."""
    path: str = scope["path"]
    raw = scope.get("raw_path")
    if raw is None:
        return path.removeprefix(scope.get("root_path", "")).removeprefix("/api/").split("/")
    quoted = raw.partition(b"?")[0].decode("ascii")
    for root in (quote(scope.get("root_path", "")), scope.get("root_path", "")):
        if quoted.startswith(f"{root}/api/"):
            quoted = quoted.removeprefix(root)
            break
    return [unquote(part) for part in quoted.removeprefix("/api/").split("/")]


def _braced(part: str) -> bool:
    return part.startswith("{")
