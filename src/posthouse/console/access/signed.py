"""What an issuer signed about a person. Algorithms, issuer and audience are pinned; the token chooses nothing."""

from __future__ import annotations

import hmac

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from posthouse.clock import Clock
from posthouse.console.access.sessions import Claims
from posthouse.edges.keys import KeySet
from posthouse.edges.oidc import LEEWAY, SIGNATURE_ONLY, Refused

ALGORITHMS = ("RS256", "ES256")
LONGEST = 32 * 1024
"""Characters of a token: somebody may be in many groups."""


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str


class _Claims(msgspec.Struct, frozen=True):
    """Those that are judged: all must be there, and of these types."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    iat: float
    nbf: float = 0.0
    azp: str | None = None
    nonce: str | None = None


class Signed:
    """Tokens of one issuer for one audience."""

    def __init__(self, keys: KeySet, issuer: str, audience: str, clock: Clock) -> None:
        self._keys, self._issuer, self._audience, self._clock = keys, issuer, audience, clock

    async def claims(self, token: str, nonce: str | None = None) -> Claims:
        """Raises Refused, or KeysUnavailable. With a `nonce` the token must hold that one."""
        header = _header(token)
        key = await self._keys.key(header.kid)
        if key is None or header.alg != ("RS256" if isinstance(key, RSAPublicKey) else "ES256"):
            raise Refused("signed with a key that the issuer does not have")
        try:
            said: dict[str, object] = jwt.decode(token, key, algorithms=[header.alg], options=SIGNATURE_ONLY)
            claims = msgspec.convert(said, _Claims)
        except jwt.PyJWTError as error:
            raise Refused(f"bad signature or form: {type(error).__name__}") from error
        except msgspec.ValidationError as error:
            raise Refused(f"claims: {error}") from error
        self._judge(claims, nonce)
        return said

    def _judge(self, claims: _Claims, nonce: str | None) -> None:
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if claims.iss != self._issuer:
            raise Refused("another issuer")
        if self._audience not in audiences:
            raise Refused("made out to another audience")
        if (len(audiences) > 1 or claims.azp is not None) and nonce is not None and claims.azp != self._audience:
            raise Refused("made for another client")
        if not max(claims.iat, claims.nbf) - LEEWAY <= self._clock.now() <= claims.exp + LEEWAY:
            raise Refused("not valid now: it has expired, or the clocks disagree")
        if nonce is not None and not hmac.compare_digest((claims.nonce or "").encode(), nonce.encode()):
            raise Refused("made for another sign-in")


def _header(token: str) -> _Header:
    if len(token) > LONGEST:
        raise Refused("too long")
    try:
        header = msgspec.convert(jwt.get_unverified_header(token), _Header)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError) as error:
        raise Refused(f"no token: {type(error).__name__}") from error
    if header.alg not in ALGORITHMS:
        raise Refused(f"signed by another algorithm than {' or '.join(ALGORITHMS)}")
    return header
