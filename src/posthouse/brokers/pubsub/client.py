"""The way to Pub/Sub: Google's async clients on one place, names, and the one spot where foreign errors end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from posthouse.errors import BrokerUnavailable
from posthouse.pulse import alive

RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),  # one instance, one connection: none waits behind the back-off of another
)
"""gRPC's own waits two minutes between attempts; a relay asks again by itself."""
ALIVE = (("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000))
"""As Google's own client has it: a pull on a link that died without a word would wait for ever. Emulators take it for an
attack."""


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Foreign errors end here."""
    try:
        yield
    except (GoogleAPICallError, GoogleAuthError, grpc.RpcError, TimeoutError, OSError) as error:
        raise BrokerUnavailable(f"Pub/Sub, {doing}: {words(error)}") from error
    alive()


def words(error: BaseException) -> str:
    said = getattr(error, "message", None) or str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class Client:
    """Connects when first used. `emulator` is a host and port without credentials, and without TLS unless `driver` has some;
    `endpoint` the name of a regional endpoint, or of one's own; `driver` goes to both clients as it is."""

    def __init__(
        self,
        project: str,
        *,
        emulator: str | None = None,
        endpoint: str | None = None,
        timeout: float = 10.0,
        driver: Mapping[str, object] | None = None,
    ) -> None:
        self.project = project
        self.emulator = emulator
        self.endpoint = endpoint
        self.timeout = timeout
        self._driver = dict(driver or {})
        self._publisher: PublisherAsyncClient | None = None
        self._subscriber: SubscriberAsyncClient | None = None

    @property
    def publisher(self) -> PublisherAsyncClient:
        if self._publisher is None:
            with mapped("connecting"):
                transport = PublisherGrpcAsyncIOTransport(**self._where())  # type: ignore[arg-type]  # the driver's own
                self._publisher = PublisherAsyncClient(transport=transport)
        return self._publisher

    @property
    def subscriber(self) -> SubscriberAsyncClient:
        if self._subscriber is None:
            with mapped("connecting"):
                transport = SubscriberGrpcAsyncIOTransport(**self._where())  # type: ignore[arg-type]  # the driver's own
                self._subscriber = SubscriberAsyncClient(transport=transport)
        return self._subscriber

    def topic(self, name: str) -> str:
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        return f"projects/{self.project}/subscriptions/{name}"

    async def aclose(self) -> None:
        clients, self._publisher, self._subscriber = (self._publisher, self._subscriber), None, None
        for client in clients:
            if client is not None:
                await client.transport.close()  # type: ignore[no-untyped-call]  # google's, without types

    def _where(self) -> dict[str, object]:
        options = dict(self._driver)
        if self.emulator is not None:
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]  # google's, without types
            return {"host": self.emulator, "credentials": nobody, "channel": self._channel, **options}
        if self.endpoint is not None:
            options.setdefault("host", self.endpoint)
        return {"channel": self._channel, **options}

    def _channel(self, host: str, *, options: Sequence[tuple[str, object]] = (), **rest: object) -> grpc.aio.Channel:
        options = [*options, *RECONNECT]
        if self.emulator is not None:
            tls = rest.get("ssl_credentials")
            if isinstance(tls, grpc.ChannelCredentials):
                return grpc.aio.secure_channel(host, tls, options=options)
            return grpc.aio.insecure_channel(host, options=options)
        return SubscriberGrpcAsyncIOTransport.create_channel(host, options=[*options, *ALIVE], **rest)  # type: ignore[arg-type]  # passed on
