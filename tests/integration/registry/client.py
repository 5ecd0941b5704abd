"""A client that asks a registry over HTTP, without a server, and some schemas."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import cast

import httpx

from posthouse.governance.registry.app import registry_app
from posthouse.governance.registry.door import Door
from posthouse.governance.registry.judge import Judge
from posthouse.governance.registry.ledgers import open_ledger

Json = dict[str, object]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
ORDER_WITH_NOTE = {
    **ORDER,
    "fields": [{"name": "id", "type": "string"}, {"name": "note", "type": "string", "default": ""}],
}
ORDER_WITH_TOTAL = {**ORDER, "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "long"}]}


class Client:
    """Asks a registry and gives back values."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def ask(self, method: str, path: str, body: object = None, **query: object) -> httpx.Response:
        params = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
        return await self.http.request(method, path, json=body, params=params)

    async def get(self, path: str, **query: object) -> object:
        answer = await self.ask("GET", path, **query)
        assert answer.status_code == 200, answer.text
        return cast(object, answer.json())

    async def register(self, subject: str, schema: object, type: str | None = None, **more: object) -> int:
        answer = await self.ask("POST", f"/subjects/{subject}/versions", schema_body(schema, type, **more))
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])

    async def refused(self, method: str, path: str, body: object = None, **query: object) -> tuple[int, int]:
        """The status and the number of a refusal."""
        answer = await self.ask(method, path, body, **query)
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        refusal = answer.json()
        assert set(refusal) == {"error_code", "message"}, refusal
        assert refusal["message"]
        return answer.status_code, refusal["error_code"]


def schema_body(schema: object, type: str | None = None, **more: object) -> Json:
    body: Json = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
    return body | {"schemaType": type} if type else body


@contextlib.asynccontextmanager
async def served(
    url: str, *, door: Door | None = None, judge: Judge | None = None, **bounds: float
) -> AsyncIterator[Client]:
    """A client of a registry that is kept at the URL."""
    ledger = open_ledger(url)
    app = registry_app(
        ledger,
        door=door,
        judge=judge,
        opened=True,
        most_bytes=int(bounds.get("most_bytes", 100_000)),
        patience=bounds.get("patience", 30.0),
    )
    await ledger.open()
    try:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://registry") as http:
            yield Client(http)
    finally:
        await ledger.aclose()
