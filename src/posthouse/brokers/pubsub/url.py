"""What a `pubsub:` URL may say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import grpc
import msgspec

from posthouse.brokers.options import options_of, said_in
from posthouse.brokers.pubsub.broker import PubSubBroker
from posthouse.brokers.pubsub.push import Push
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.local.tls import Tls, contradicts, proven


class PubSubOptions(Tls, frozen=True):
    """What may follow the `?`: parameters of PubSubBroker, and TLS, which is on unless there is an emulator."""

    lease: Annotated[int, msgspec.Meta(ge=10, le=600)] = 60
    retention: Annotated[float, msgspec.Meta(ge=600, le=31 * 86_400)] = 7 * 86_400.0
    dead_letters: str = "posthouse.lost"
    endpoint: str | None = None
    emulator: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    push: str | None = None
    push_account: str = ""
    push_audience: str = ""


def from_url(parts: SplitResult, clock: Clock) -> PubSubBroker:
    """Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options = options_of("pubsub", said_in(parts), PubSubOptions(), problems)
    if not parts.netloc:
        problems.append(f"{parts.geturl()!r} names no project: write pubsub://my-project")
    problems += push_problems(options)
    emulator = options.emulator or os.environ.get("PUBSUB_EMULATOR_HOST")  # as Google's own clients do
    driver = secured(options, emulator, problems)
    if problems:
        raise ConfigurationError(*problems)
    return PubSubBroker(
        parts.netloc,
        clock=clock,
        lease=options.lease,
        retention=options.retention,
        dead_letters=options.dead_letters,
        endpoint=options.endpoint,
        emulator=emulator,
        timeout=options.timeout,
        push=push_of(options),
        driver=driver,
    )


def secured(options: PubSubOptions, emulator: str | None, problems: list[str]) -> dict[str, object]:
    """What the driver is told of TLS."""
    if contradicts(options, problems):
        return {}
    if options.tls is False and emulator is None:
        problems.append("pubsub: tls=false needs an emulator: Google takes no plain text")
    if not options.on or proven(options.files, problems) is None:
        return {}
    ca, cert, key = (None if path is None else Path(path).read_bytes() for path in options.files)
    return {"ssl_channel_credentials": grpc.ssl_channel_credentials(ca, key or cert, cert)}


def push_of(options: PubSubOptions) -> Push | None:
    if options.push is None:
        return None
    return Push(endpoint=options.push, account=options.push_account, audience=options.push_audience)


def push_problems(options: PubSubOptions) -> list[str]:
    """The service brings tokens only to https, and a push without one can come from anybody."""
    if options.push is None:
        alone = [name for name in ("push_account", "push_audience") if getattr(options, name)]
        return [f"pubsub: {name} needs push, the https URL that the service pushes to" for name in alone]
    problems = []
    if urlsplit(options.push).scheme != "https" or not urlsplit(options.push).hostname:
        problems.append(f"pubsub: push={options.push!r} is no https URL: Pub/Sub pushes to no other")
    if not options.push_account:
        problems.append(
            "pubsub: push needs push_account, the service account that Pub/Sub signs its tokens for, as in "
            "push_account=push@my-project.iam.gserviceaccount.com"
        )
    return problems
