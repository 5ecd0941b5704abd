"""The console inside an application of yours, for the people who are signed in there."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Scope

from posthouse import Service
from posthouse.console.access import Access, Who
from posthouse.console.application import console

orders = Service("orders")
SESSIONS = {"s-1": "ana@example.com", "s-2": "ben@example.com"}
"""Stands for your own sign-in."""


def who_asks(scope: Scope) -> Who | None:
    name = SESSIONS.get(Request(scope).cookies.get("session", ""))
    if name is None:
        return None
    on_call = name == "ana@example.com"
    return Who(name=name, roles=frozenset(("operator" if on_call else "reader",)), payloads=on_call)


app = FastAPI()
app.mount("/posthouse", console(orders, access=Access(who=who_asks)))


async def main() -> None:
    browser = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://shop.example")
    async with browser:
        for session in ("s-1", "s-2", "none"):
            asked = await browser.get("/posthouse/api/access/session", headers={"cookie": f"session={session}"})
            who = asked.json()["data"]["who"]
            print(session, f"{who['name']}, {who['roles'][0]}" if who else "nobody")
        stranger = await browser.get("/posthouse/api/services")
        print(stranger.status_code, stranger.json()["error"]["message"])


asyncio.run(main())
