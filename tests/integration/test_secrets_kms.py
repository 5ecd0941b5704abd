"""Master keys in AWS KMS, against moto, and in Google KMS, against a small server of its own protocol: none of Google's own answers
on a loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from aiobotocore.session import get_session
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.cloud.kms_v1 import DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse

from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.trust.secrets.master import Master
from posthouse.trust.secrets.masters import open_master
from tests.kit.servers.sqs import SqsServer

KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


class KmsOfGoogle:
    """Encrypts and decrypts with one key, as Google's does, and refuses what it did not encrypt."""

    def __init__(self) -> None:
        self._key = AESGCM(AESGCM.generate_key(256))

    def handlers(self) -> Any:
        return grpc.method_handlers_generic_handler(
            "google.cloud.kms.v1.KeyManagementService",
            {
                "Encrypt": grpc.unary_unary_rpc_method_handler(
                    self._encrypt, EncryptRequest.deserialize, EncryptResponse.serialize
                ),
                "Decrypt": grpc.unary_unary_rpc_method_handler(
                    self._decrypt, DecryptRequest.deserialize, DecryptResponse.serialize
                ),
            },
        )

    async def _encrypt(self, request: EncryptRequest, context: Any) -> EncryptResponse:
        nonce = os.urandom(12)
        sealed = self._key.encrypt(nonce, request.plaintext, request.additional_authenticated_data)
        return EncryptResponse(name=request.name, ciphertext=nonce + sealed)

    async def _decrypt(self, request: DecryptRequest, context: Any) -> DecryptResponse:
        try:
            plain = self._key.decrypt(
                request.ciphertext[:12], request.ciphertext[12:], request.additional_authenticated_data
            )
        except Exception:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Decryption failed: the ciphertext is invalid.")
        return DecryptResponse(plaintext=plain)


@pytest_asyncio.fixture(params=["aws", "google"])
async def master(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Master]:
    if request.param == "google":
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((KmsOfGoogle().handlers(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        made = open_master(f"gcp-kms:{KEY}?emulator=127.0.0.1:{port}", 5.0)
        yield made
        await made.aclose()
        await server.stop(None)
        return
    moto: SqsServer = request.getfixturevalue("sqs_server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = f"http://127.0.0.1:{moto.port}"
    async with get_session().create_client("kms", region_name="eu-central-1", endpoint_url=endpoint) as client:
        key = (await client.create_key())["KeyMetadata"]["KeyId"]
    made = open_master(f"aws-kms:{key}?region=eu-central-1&endpoint_url={endpoint}", 5.0)
    yield made
    await made.aclose()


async def test_what_was_wrapped_is_unwrapped_for_the_same_person_alone(master: Master) -> None:
    wrapped = await master.wrap("t1", "g1", b"k" * 32)
    assert b"k" * 32 not in wrapped
    assert await master.unwrap("t1", "g1", wrapped) == b"k" * 32
    for tenant, subject in (("t1", "g2"), ("t2", "g1")):
        with pytest.raises(ConfigurationError, match="did not wrap"):
            await master.unwrap(tenant, subject, wrapped)


@pytest.mark.parametrize(
    "name",
    [
        "aws-kms:alias/x?region=eu-central-1&endpoint_url=http://127.0.0.1:1",
        f"gcp-kms:{KEY}?emulator=127.0.0.1:1",
    ],
)
async def test_one_that_is_away_is_told_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    away = open_master(name, 2.0)
    with pytest.raises(SecretsUnavailable, match="master key"):
        await away.wrap("t1", "g1", b"k" * 32)
    await away.aclose()
