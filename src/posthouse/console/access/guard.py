"""The guard: an ASGI middleware that knows who asks. Pages and files of the interface are for everybody, as they hold nothing; what is
under /api is for whom a session, an assertion or the application itself speaks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from math import ceil
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from posthouse.clock import Clock, SystemClock
from posthouse.console.access.access import Access
from posthouse.console.access.callers import Assertions, no_role
from posthouse.console.access.discovery import Unavailable
from posthouse.console.access.door import (
    LARGEST,
    OF_STRANGERS,
    SAFE,
    answer,
    check_host,
    check_site,
    cookies,
    hardened,
    is_here,
    path_of,
    read_body,
    refuse,
    replaying,
)
from posthouse.console.access.oidc import WITHIN, CodeFlow, NotBegun
from posthouse.console.access.roles import name_of
from posthouse.console.access.sessions import Claims, Sessions
from posthouse.console.access.token import Attempts, OneTimeToken
from posthouse.console.access.who import Who
from posthouse.console.asking import Refusal
from posthouse.edges.keys import KeysUnavailable
from posthouse.edges.oidc import Refused

log = logging.getLogger("posthouse.console.access")

Note = Callable[[str, str, str], Awaitable[None]]
"""Keeps in the operators' log what was done (a verb), by whom, and to what."""

OPERATOR = Who(name="local", roles=frozenset(("admin",)), payloads=True)
"""Whoever reads the terminal."""
CALLBACK = "/signin/callback"
KEY = "x-posthouse-key"
NEW_LINKS = 5
"""So many links are printed in a minute because somebody asked for one."""

NOTED_EVERY = 60.0
"""Seconds for which further refusals of one page to one person are not noted."""


class _Ask(msgspec.Struct, frozen=True):
    """A request that passed the door."""

    scope: Scope
    headers: Headers
    host: str
    path: str
    is_secure: bool

    @property
    def root(self) -> str:
        root: str = self.scope.get("root_path", "")
        return root.rstrip("/")

    @property
    def peer(self) -> str:
        """The address of who asks, as the server knows it."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def cookie(self, kind: str) -> str:
        """Its name: bound to this very host where the browser does that; else apart by port, which cookies are not."""
        return f"__Host-posthouse-{kind}" if self.is_secure else f"posthouse-{kind}-{self.host.rpartition(':')[2]}"

    def given(self, kind: str) -> str:
        return cookies(self.headers).get(self.cookie(kind), "")

    @property
    def key(self) -> str:
        """The other half of a session, which pages of this very origin alone can say."""
        said = self.headers.getlist(KEY)
        return said[0] if len(said) == 1 else ""

    def set_cookie(self, kind: str, value: str, same_site: str, seconds: int | None = None) -> str:
        cookie: SimpleCookie = SimpleCookie()
        name = self.cookie(kind)
        cookie[name] = value
        cookie[name]["path"] = "/" if self.is_secure else self.root or "/"
        cookie[name]["httponly"] = True
        cookie[name]["samesite"] = same_site
        if self.is_secure:
            cookie[name]["secure"] = True
        if seconds is not None:
            cookie[name]["max-age"] = seconds
        return cookie[name].OutputString()


async def _unnoted(verb: str, by: str, target: str) -> None:
    """Where there is no store the line of the log is all."""


class Guard:
    """`announce` shows a link for a new one-time token to whoever may sign in; `note` keeps sign-ins; `ending` ends live connections."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        clock: Clock | None = None,
        note: Note = _unnoted,
        announce: Callable[[str], None] | None = None,
        ending: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._ending = ending
        self._app, self._access, self._note, self._announce = app, access, note, announce
        self._clock = clock or SystemClock()
        self._sessions = Sessions(self._clock, idle=access.idle, longest=access.longest, most=access.most_sessions)
        self._rights = access.rights()
        self._told_of: dict[tuple[str, str], float] = {}
        self._token = OneTimeToken(self._clock)
        self._attempts, self._links = Attempts(self._clock), Attempts(self._clock, NEW_LINKS, NEW_LINKS)
        self._flow = CodeFlow(access.oidc, self._clock) if access.oidc else None
        self._assertions = Assertions(access.proxy, self._clock) if access.proxy else None
        if access.way == "token":
            self._print_link()

    async def aclose(self) -> None:
        """End what is told for long: before a server waits for its answers to end."""
        if self._ending is not None:
            await self._ending()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path = path_of(scope)
        is_api = path == "/api" or path.startswith("/api/")
        is_secure = scope.get("scheme") == "https" or self._access.url.startswith("https:")
        headers = Headers(scope=scope)
        send = hardened(send, is_api or path == CALLBACK, is_secure and not is_here(headers))
        try:
            ask = _Ask(scope, headers, check_host(headers, self._access.names), path, is_secure)
            await self._pass(ask, is_api, receive, send)
        except Refusal as refusal:
            log.info(
                "refused %s %s: %s", scope["method"], "an address" if path == CALLBACK else path[:200], refusal.message
            )
            await refuse(refusal, scope, receive, send)

    async def _pass(self, ask: _Ask, is_api: bool, receive: Receive, send: Send) -> None:
        scope = ask.scope
        if is_api or scope["method"] not in SAFE:
            check_site(scope["method"], ask.headers, ask.host, self._access.url)
        if ask.path == CALLBACK and self._flow:
            await (await self._come_back(ask, self._flow))(scope, receive, send)
            return
        if ask.path.startswith("/api/access/"):
            body = b"" if scope["method"] in SAFE else await read_body(ask.headers, receive, OF_STRANGERS)
            await (await self._access_page(ask, body))(scope, receive, send)
            return
        who = await self._who(ask) if is_api else None
        if is_api and who is None:
            raise Refusal(401, "You are not signed in.", "Sign in, and this is asked again.")
        if scope["method"] not in SAFE:
            body = await read_body(ask.headers, receive, LARGEST if who else OF_STRANGERS)
            receive = replaying(body, receive)
        scope.setdefault("state", {})["who"] = who
        if who is not None:
            send = self._noting(ask, who, send)
            send = self._while_allowed(ask, who, send)
        await self._app(scope, receive, send)

    # Who asks.

    async def _who(self, ask: _Ask, *, is_use: bool = True) -> Who | None:
        """Raises Refusal for somebody who is known and may nothing. `is_use`: their session counts as used."""
        now = self._clock.now()
        if self._access.who:
            found = self._access.who(ask.scope)
            who = await found if inspect.isawaitable(found) else found
        elif self._assertions:
            claims = await self._assertions.claims(ask.headers)
            who = self._rights(claims, now, now)
            if who is None:
                raise no_role(claims)
        else:
            find = self._sessions.find if is_use else self._sessions.look
            session = find(ask.given("session"), ask.key)
            if session is None:
                return None
            who = self._rights(session.claims, session.began, now) if self._flow else OPERATOR
            if who is None:
                self._sessions.end(ask.given("session"))
                raise no_role(session.claims)
        return who if who and who.roles and (who.until is None or now < who.until) else None

    def _while_allowed(self, ask: _Ask, who: Who, send: Send) -> Send:
        """A stream ends with the session of its reader, or as soon as they may do or see something else than at its beginning."""
        is_over = False

        async def sending(message: Message) -> None:
            nonlocal is_over
            if is_over:
                return
            if (
                message["type"] == "http.response.body"
                and message.get("more_body")
                and not await self._is_still(ask, who)
            ):
                is_over = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        return sending

    async def _is_still(self, ask: _Ask, who: Who) -> bool:
        try:
            now = await self._who(ask, is_use=False)
        except Refusal:
            return False
        return now is not None and msgspec.structs.replace(now, until=who.until) == who

    def _noting(self, ask: _Ask, who: Who, send: Send) -> Send:
        """What somebody known asks for and may not have is kept before they are told; once a minute for each page, as they can ask
        as often as they like, and each line is a write in every store."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 403:
                parts = ask.path.split("/")
                page = "/".join(parts[: 4 if parts[2:3] == ["acts"] else 3])
                if self._is_news(who.name, f"{ask.scope['method']} {page}"):
                    await self._note("console refused", who.name, f"{ask.scope['method']} {ask.path[:200]}")
            await send(message)

        return sending

    def _is_news(self, name: str, page: str) -> bool:
        """Whether this person was not refused this page within the last minute."""
        now = self._clock.monotonic()
        self._told_of = {one: at for one, at in self._told_of.items() if now - at < NOTED_EVERY}
        if (name, page) in self._told_of:
            return False
        self._told_of[name, page] = now
        return True

    # Signing in and out.

    async def _access_page(self, ask: _Ask, body: bytes) -> Response:
        match ask.scope["method"], ask.path.removeprefix("/api/access/"):
            case "GET", "session":
                return await self._told(ask)
            case "POST", "token" if self._access.way == "token":
                return await self._exchange(ask, body)
            case "POST", "link" if self._access.way == "token":
                return self._new_link(ask)
            case "POST", "oidc" if self._flow:
                return await self._go(ask, self._flow, body)
            case "POST", "out":
                return await self._sign_out(ask)
        raise Refusal(404, "There is no such way to sign in here.")

    async def _told(self, ask: _Ask) -> Response:
        refused = ""
        try:
            who = await self._who(ask)
        except Refusal as refusal:
            who, refused = None, refusal.message
        provider = self._access.oidc.issuer if self._access.oidc else ""
        data = {"way": self._access.way, "provider": provider, "who": who, "refused": refused}
        return _data(data)

    async def _exchange(self, ask: _Ask, body: bytes) -> Response:
        token = _field(body, "token")
        if pause := ceil(self._attempts.pause(ask.peer)):
            raise Refusal(429, "Too many attempts were refused.", f"Try again in {pause} seconds.")
        if not self._token.take(token):
            self._attempts.refused(ask.peer)
            await self._refused("a one-time token", "was used, is too old, or never was one")
            raise Refusal(
                401,
                "This token was used, is too old, or never was one.",
                "Ask for a new link: it is printed where the console runs.",
            )
        cookie, key = await self._signed_in(ask, {"sub": OPERATOR.name})
        response = _data({"to": "/", "key": key})
        response.headers.append("set-cookie", cookie)
        return response

    def _new_link(self, ask: _Ask) -> Response:
        if pause := ceil(self._links.pause(ask.peer)):
            raise Refusal(
                429, "Links were printed just now.", f"Use the last of them, or try again in {pause} seconds."
            )
        self._links.refused(ask.peer)
        self._print_link()
        return _data({"printed": True})

    def _print_link(self) -> None:
        if self._announce:
            self._announce(self._token.new())

    async def _go(self, ask: _Ask, flow: CodeFlow, body: bytes) -> Response:
        to = _inside(_field(body, "to"))
        try:
            where, sealed = await flow.begin(self._back(ask), to)
        except Unavailable as error:
            log.warning("the provider cannot be used: %s", error)
            raise Refusal(
                503, "The provider of sign-ins cannot be used now.", "The console's log says why. Try again."
            ) from None
        went = _data({"go": where})
        went.headers.append(
            "set-cookie", ask.set_cookie("signin", sealed, "Lax", int(WITHIN))
        )  # it comes back from elsewhere
        return went

    async def _come_back(self, ask: _Ask, flow: CodeFlow) -> Response:
        if ask.scope["method"] != "GET":
            raise Refusal(405, "The provider sends people back by GET.")
        pairs = parse_qsl(ask.scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=20)
        why = "refused"
        try:
            if self._attempts.pause(ask.peer):
                raise NotBegun("too many attempts from this address were refused")
            if len(dict(pairs)) != len(pairs):
                raise NotBegun("a parameter is said twice")
            claims, to = await flow.end(ask.given("signin"), dict(pairs), self._back(ask))
            who = self._rights(claims, self._clock.now(), self._clock.now())
            if who is not None and who.roles:
                cookie, key = await self._signed_in(ask, claims)
                # behind the #, which no browser sends to anybody: the page takes it out of the address bar
                response = RedirectResponse(f"{ask.root}{to.partition('#')[0]}#key={key}", 303)
                response.headers.append("set-cookie", ask.set_cookie("signin", "", "Lax", 0))
                response.headers.append("set-cookie", cookie)
                return response
            why = "role"
            await self._refused(name_of(claims), "no rule gives a role")
        except NotBegun as error:
            await self._refused("somebody", str(error))
        except Refused as error:
            self._attempts.refused(ask.peer)
            await self._refused("somebody", str(error))
        except (Unavailable, KeysUnavailable) as error:
            why = "provider"
            log.warning("the provider cannot be used: %s", error)
        response = RedirectResponse(f"{ask.root}/signin?refused={why}", 303)
        response.headers.append("set-cookie", ask.set_cookie("signin", "", "Lax", 0))
        return response

    async def _signed_in(self, ask: _Ask, claims: Claims) -> tuple[str, str]:
        """The cookie of a new session, and its key."""
        self._sessions.end(ask.given("session"))
        name, key = self._sessions.begin(claims)
        by = name_of(claims) or "?"
        log.info("%s signed in", by)
        await self._note("console sign-in", by, self._access.way)
        return ask.set_cookie("session", name, "Strict"), key

    async def _sign_out(self, ask: _Ask) -> Response:
        session = self._sessions.find(ask.given("session"), ask.key)
        if session is not None:
            self._sessions.end(ask.given("session"))
            await self._note("console sign-out", name_of(session.claims) or "?", self._access.way)
        response = _data({"way": self._access.way})
        response.headers.append("set-cookie", ask.set_cookie("session", "", "Strict", 0))
        return response

    async def _refused(self, by: str, why: str) -> None:
        log.warning("the sign-in of %s was refused: %s", by or "somebody", why)
        if by and by not in ("somebody", "a one-time token"):
            await self._note("console refused", by, why)

    def _back(self, ask: _Ask) -> str:
        """Where the provider sends people back: a configured address, else the Host, which was checked."""
        here = f"{ask.scope.get('scheme', 'http')}://{ask.host}{ask.root}"
        return f"{self._access.url.rstrip('/') or here}{CALLBACK}"


def _data(data: object) -> Response:
    return answer({"data": data, "problems": [], "at": datetime.now(UTC)})


def _field(body: bytes, name: str) -> str:
    try:
        said = msgspec.json.decode(body, type=dict[str, str])[name]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        raise Refusal(400, f"What is sent here is {{{name!r}: a text}}.") from None
    return said


def _inside(to: str) -> str:
    """A path of this console, or its first page: nobody is sent elsewhere after a sign-in."""
    is_path = to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isascii() and to.isprintable()
    return to if is_path and len(to) <= 2_000 and not to.startswith("/signin") else "/"
