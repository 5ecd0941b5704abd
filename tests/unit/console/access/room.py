"""A guarded room for the tests: a small application that says who is in it, behind the guard, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from posthouse.clock import Clock
from posthouse.console.access import Access
from posthouse.console.access.guard import KEY, Guard
from tests.kit.asgi import served


class Room:
    """`address` is where it is served, `token` the last that was printed, `noted` what went to the operators' log, `did` counts acts, `key` is that
    of the last session."""

    def __init__(self) -> None:
        self.address = ""
        self.tokens: list[str] = []
        self.noted: list[tuple[str, str, str]] = []
        self.did = 0
        self.key = ""
        self.more = asyncio.Event()

    @property
    def token(self) -> str:
        return self.tokens[-1]

    def client(self, cookies: httpx.Cookies | None = None, **headers: str) -> httpx.AsyncClient:
        """As the page of the console asks; `headers` say otherwise, with _ for -."""
        said = {"origin": f"http://{self.address}", "sec-fetch-site": "same-origin"}
        said |= {KEY: self.key} if cookies is not None else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        client = httpx.AsyncClient(
            base_url=f"http://{self.address}", headers={k: v for k, v in said.items() if v}, cookies=cookies
        )

        async def keep(answer: httpx.Response) -> None:
            """As the page does: the key of a session is in the answer to a token, or behind the # of where it is sent to."""
            key = answer.headers.get("location", "").partition("#key=")[2]
            if answer.request.url.path.endswith("/api/access/token") and answer.status_code == 200:
                await answer.aread()
                key = answer.json()["data"]["key"]
            if key:
                self.key = client.headers[KEY] = key

        client.event_hooks["response"].append(keep)
        return client

    async def note(self, verb: str, by: str, target: str) -> None:
        self.noted.append((verb, by, target))

    async def who(self, request: Request) -> Response:
        return Response(msgspec.json.encode(request.state.who), media_type="application/json")

    async def act(self, request: Request) -> Response:
        await request.json()
        self.did += 1
        return PlainTextResponse("done")

    async def forbid(self, request: Request) -> Response:
        return PlainTextResponse("not for you", 403)

    async def stream(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield b"more\n"
                await self.more.wait()
                self.more.clear()

        return StreamingResponse(lines())

    async def index(self, request: Request) -> Response:
        return PlainTextResponse("the interface", headers={"cache-control": "no-cache"})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/who", self.who),
                Route("/api/forbidden", self.forbid),
                Route("/api/stream", self.stream),
                Route("/api/acts/{name}", self.act, methods=["POST", "PUT", "DELETE"]),
                Route("/{path:path}", self.index),
            ]
        )


@contextlib.asynccontextmanager
async def guarding(access: Access, clock: Clock | None = None, root: str = "") -> AsyncIterator[Room]:
    room = Room()
    guard = Guard(room.app(), access=access, clock=clock, note=room.note, announce=room.tokens.append)
    async with served(Starlette(routes=[Mount(root, guard)]) if root else guard) as address:
        room.address = address
        yield room


async def signed_in(room: Room, client: httpx.AsyncClient, root: str = "") -> None:
    """By the token that was printed last."""
    answer = await client.post(f"{root}/api/access/token", json={"token": room.token})
    assert answer.status_code == 200, answer.text


def cookie(answer: httpx.Response, name: str) -> Mapping[str, str]:
    """The flags of one cookie that is set, in lower case; `value` is its own."""
    for line in answer.headers.get_list("set-cookie"):
        first, *flags = [part.strip() for part in line.split(";")]
        if first.partition("=")[0] == name:
            return {"value": first.partition("=")[2]} | {
                flag.partition("=")[0].lower(): flag.partition("=")[2] for flag in flags
            }
    raise AssertionError(f"{name} is not set: {answer.headers.get_list('set-cookie')}")
