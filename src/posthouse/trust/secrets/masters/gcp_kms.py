"""GcpKmsMaster: a key in Google Cloud KMS wraps the keys of persons; it never leaves there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import grpc
import msgspec
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPIError, InvalidArgument
from google.auth.exceptions import GoogleAuthError
from google.cloud.kms_v1 import DecryptRequest, EncryptRequest, KeyManagementServiceAsyncClient
from google.cloud.kms_v1.services.key_management_service.transports import KeyManagementServiceGrpcAsyncIOTransport

from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.trust.secrets.master import Master


def open_at(kind: str, rest: str, patience: float) -> Master:
    """`gcp-kms:projects/P/locations/L/keyRings/R/cryptoKeys/K`; `?emulator=HOST:PORT` is asked in plain text."""
    name, _, query = rest.partition("?")
    return GcpKmsMaster(name, dict(parse_qsl(query)), patience)


class GcpKmsMaster:
    """`name` is the resource name of the key. Tenant and person are additional authenticated data."""

    def __init__(self, name: str, options: Mapping[str, str], patience: float = 5.0) -> None:
        self.place = f"gcp-kms:{name}"
        self._name = name
        self._emulator, self._endpoint = options.get("emulator"), options.get("endpoint")
        self._patience = patience
        self._client: KeyManagementServiceAsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def begin(self) -> None: ...

    async def wrap(self, tenant: str, subject: str, key: bytes) -> bytes:
        request = EncryptRequest(
            name=self._name, plaintext=key, additional_authenticated_data=_context(tenant, subject)
        )
        answer = await self._ask("encrypt", request)
        return bytes(answer.ciphertext)

    async def unwrap(self, tenant: str, subject: str, wrapped: bytes) -> bytes:
        request = DecryptRequest(
            name=self._name, ciphertext=wrapped, additional_authenticated_data=_context(tenant, subject)
        )
        answer = await self._ask("decrypt", request)
        return bytes(answer.plaintext)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.transport.close()  # type: ignore[no-untyped-call]  # it has no types

    async def _ask(self, verb: str, request: Any) -> Any:
        try:
            return await getattr(self._client_here(), verb)(request=request, timeout=self._patience, retry=None)
        except InvalidArgument as error:
            raise ConfigurationError(f"the master key {self.place} did not wrap this key: {error.message}") from error
        except (GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError, TimeoutError) as error:
            raise SecretsUnavailable(f"the master key {self.place}: {error}") from error

    def _client_here(self) -> KeyManagementServiceAsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            if self._emulator:
                channel = grpc.aio.insecure_channel(self._emulator)
                transport = KeyManagementServiceGrpcAsyncIOTransport(channel=channel)
                self._client = KeyManagementServiceAsyncClient(transport=transport)
            else:
                options = ClientOptions(api_endpoint=self._endpoint) if self._endpoint else None
                self._client = KeyManagementServiceAsyncClient(client_options=options)
        return self._client


def _context(tenant: str, subject: str) -> bytes:
    return msgspec.json.encode(("posthouse.key.1", tenant, subject))
