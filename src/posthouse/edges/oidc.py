"""Tokens of Google's OpenID Connect: who has sent a request. The algorithm is pinned; the token chooses nothing."""

from __future__ import annotations

import hmac

import jwt
import msgspec
from jwt.types import Options

from posthouse.clock import Clock
from posthouse.edges.keys import KeySet

ISSUERS = ("https://accounts.google.com", "accounts.google.com")
LEEWAY = 30.0
"""Seconds by which two clocks may differ."""
LONGEST = 8 * 1024
"""Characters of a token."""
ALGORITHM = "RS256"


class Refused(Exception):
    """The token does not say who has sent this, or not in a way that can be believed."""


class NotWelcome(Refused):
    """It is a good token, and somebody else's."""


class Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str


class Claims(msgspec.Struct, frozen=True):
    """All of them must be there, and of these types."""

    iss: str
    aud: str
    exp: int
    iat: int
    email: str
    email_verified: bool


class Sender:
    """The one account that may send, and the one name that its tokens must be made out to. Both are configured, never
    taken from the request."""

    def __init__(self, *, audience: str, account: str, keys: KeySet, clock: Clock) -> None:
        self._audience = audience
        self._account = account
        self._keys = keys
        self._clock = clock

    async def check(self, token: str) -> None:
        """Raises Refused, or KeysUnavailable."""
        header = _header(token)
        key = await self._keys.key(header.kid)
        if key is None:
            raise Refused("signed with a key that the issuer does not have")
        try:
            said = jwt.decode(token, key, algorithms=[ALGORITHM], options=SIGNATURE_ONLY)
            claims = msgspec.convert(said, Claims)
        except jwt.PyJWTError as error:
            raise Refused(f"bad signature or form: {type(error).__name__}") from error
        except msgspec.ValidationError as error:
            raise Refused(f"claims: {error}") from error
        self._judge(claims)

    def _judge(self, claims: Claims) -> None:
        now = self._clock.now()
        if claims.iss not in ISSUERS:
            raise Refused("another issuer")
        if not _same(claims.aud, self._audience):
            raise Refused("made out to another audience")
        if not claims.iat - LEEWAY <= now <= claims.exp + LEEWAY:
            raise Refused("not valid now: it has expired, or the clocks disagree")
        if not claims.email_verified or not _same(claims.email, self._account):
            raise NotWelcome("another account, or one that is not verified")


SIGNATURE_ONLY: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""The library proves the signature; claims are judged here, by our own clock."""


def _header(token: str) -> Header:
    if len(token) > LONGEST:
        raise Refused("too long")
    try:
        header = msgspec.convert(jwt.get_unverified_header(token), Header)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError) as error:
        raise Refused(f"no token: {type(error).__name__}") from error
    if header.alg != ALGORITHM:
        raise Refused(f"signed by another algorithm than {ALGORITHM}")
    return header


def _same(said: str, wanted: str) -> bool:
    return hmac.compare_digest(said.encode(), wanted.encode())
