"""AwsKmsMaster: a key in AWS KMS wraps the keys of persons; it never leaves there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qsl

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.trust.secrets.master import Master

FOREIGN_CIPHERTEXT = ("InvalidCiphertextException", "IncorrectKeyException")


def open_at(kind: str, rest: str, patience: float) -> Master:
    """`aws-kms:alias/NAME?region=…&endpoint_url=…`; what is not said is AWS's own configuration."""
    key, _, query = rest.partition("?")
    return AwsKmsMaster(key, dict(parse_qsl(query)), patience)


class AwsKmsMaster:
    """`key` is an id, an ARN or alias/NAME. Tenant and person are the encryption context, which CloudTrail shows."""

    def __init__(self, key: str, options: Mapping[str, str], patience: float = 5.0) -> None:
        self.place = f"aws-kms:{key}"
        self._key = key
        self._region, self._endpoint = options.get("region"), options.get("endpoint_url")
        self._patience = patience
        self._stack: AsyncExitStack | None = None
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def begin(self) -> None: ...

    async def wrap(self, tenant: str, subject: str, key: bytes) -> bytes:
        answer = await self._ask("encrypt", KeyId=self._key, Plaintext=key, EncryptionContext=_context(tenant, subject))
        return bytes(answer["CiphertextBlob"])

    async def unwrap(self, tenant: str, subject: str, wrapped: bytes) -> bytes:
        context = _context(tenant, subject)
        answer = await self._ask("decrypt", KeyId=self._key, CiphertextBlob=wrapped, EncryptionContext=context)
        return bytes(answer["Plaintext"])

    async def aclose(self) -> None:
        stack, self._stack, self._client = self._stack, None, None
        if stack is not None and self._loop is asyncio.get_running_loop():
            await stack.aclose()

    async def _ask(self, verb: str, **what: Any) -> Any:
        try:
            async with asyncio.timeout(self._patience):
                client = await self._client_here()
                return await getattr(client, verb)(**what)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code", "") in FOREIGN_CIPHERTEXT:
                raise ConfigurationError(f"the master key {self.place} did not wrap this key: {error}") from error
            raise SecretsUnavailable(f"the master key {self.place}: {error}") from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise SecretsUnavailable(f"the master key {self.place}: {error or type(error).__name__}") from error

    async def _client_here(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._stack, self._loop = AsyncExitStack(), loop
            config = AioConfig(
                retries={"total_max_attempts": 1}, connect_timeout=self._patience, read_timeout=self._patience
            )
            made = get_session().create_client(
                "kms", region_name=self._region, endpoint_url=self._endpoint, config=config
            )
            self._client = await self._stack.enter_async_context(made)
        return self._client


def _context(tenant: str, subject: str) -> Mapping[str, str]:
    return {"tenant": tenant, "subject": subject}
