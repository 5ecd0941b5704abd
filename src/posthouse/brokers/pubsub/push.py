"""Push: the service brings messages to an HTTPS endpoint in place of being asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from google.pubsub_v1.types import PushConfig, Subscription

from posthouse.broker import Delivery
from posthouse.clock import Clock
from posthouse.errors import BrokerError
from posthouse.survey import Drift


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service pushes to, and as whom. `account` is the service account that it signs its tokens for;
    `audience` what they are made out to, which is the endpoint unless something else is said."""

    endpoint: str
    account: str
    audience: str = ""

    @property
    def made_out_to(self) -> str:
        return self.audience or self.endpoint


def config_of(push: Push | None) -> PushConfig:
    """Empty means: pulled."""
    if push is None:
        return PushConfig()
    token = PushConfig.OidcToken(service_account_email=push.account, audience=push.made_out_to)
    return PushConfig(push_endpoint=push.endpoint, oidc_token=token)


def push_drift(found: Subscription, push: Push | None) -> list[Drift]:
    """Whether the subscription is pushed as it should be."""
    there, wanted = words_of(found.push_config), words_of(config_of(push))
    return [] if there == wanted else [Drift(setting="push", found=there, wanted=wanted)]


def mismatch(found: Subscription, push: Push | None) -> str:
    """Why a group cannot read a subscription that comes the other way; "" when it can."""
    pushed = bool(found.push_config.push_endpoint)
    if pushed == (push is not None):
        return ""
    name = found.name.rsplit("/", 1)[-1]
    if pushed:
        said = f"subscription {name} is pushed to {found.push_config.push_endpoint} and cannot be pulled: say push=… in the URL"
    else:
        said = f"subscription {name} is pulled, and the broker's URL says push"
    return f"{said}; `posthouse topology apply` makes the subscription as the URL says"


def words_of(config: PushConfig) -> str:
    if not config.push_endpoint:
        return "pulled"
    if not config.oidc_token.service_account_email:
        return f"to {config.push_endpoint} without a token"
    audience = config.oidc_token.audience or config.push_endpoint
    made_out = "" if audience == config.push_endpoint else f" for {audience}"
    bare = " unwrapped" if "no_wrapper" in config else ""
    return f"to {config.push_endpoint}{bare} as {config.oidc_token.service_account_email}{made_out}"


class SilentStream:
    """The stream of a group whose frames come to the endpoint: nothing ever comes here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed = asyncio.Event()

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if await self._clock.wait(self._closed, wait):
            raise BrokerError("this stream was closed")
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """There is nothing that it could have handed out."""

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        """There is nothing that it could have handed out."""

    async def aclose(self) -> None:
        self._closed.set()
