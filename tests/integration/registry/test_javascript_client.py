"""A registry client for JavaScript, of another maker, against a served registry."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("httpx2", reason="the registry client of confluent-kafka needs httpx2")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from posthouse.governance.registry.users import Role, User, hashed, keep_user
from tests.integration.registry.process import registry_process

CLIENT = "@kafkajs/confluent-schema-registry@4.1.0"
ROOT = Path(__file__).parents[3]
HOME = ROOT / ".cache" / "js-registry"
SCRIPT = Path(__file__).parents[1] / "js" / "registry.mjs"
VALUE = SerializationContext("orders", MessageField.VALUE)

ORDER_AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"}]}'
ORDER_JSON = '{"type":"object","title":"Order","properties":{"id":{"type":"string"}},"required":["id"]}'
ORDER_PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; }'

Json = dict[str, object]
Ask = Callable[..., Json]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js with the client beside it, installed once into `.cache/js-registry`."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        reason = "node and npm are not installed: the JavaScript client of the registry was NOT checked"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    name, _, version = CLIENT.rpartition("@")
    manifest = HOME / "node_modules" / name / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != version:
        _install(npm)
    return program


def _install(npm: str) -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", CLIENT]
    try:
        subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True, timeout=180)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"THE NPM REGISTRY DID NOT GIVE {CLIENT}, the JavaScript client was NOT checked: {error}")


@pytest.fixture(scope="module")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = tmp_path_factory.mktemp("registry") / "users"
    keep_user(users, User("node", Role.ADMIN, hashed("correct horse")))  # it sets the level of each new subject itself
    with registry_process("sqlite://", "--users", str(users)) as url:
        yield url


@pytest.fixture
def ask(node: str, registry_url: str) -> Ask:
    def asked(**task: object) -> Json:
        done = subprocess.run(
            [node, str(SCRIPT), str(HOME / "package.json")],
            input=json.dumps({"url": registry_url, "auth": {"username": "node", "password": "correct horse"}, **task}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return cast(Json, json.loads(done.stdout))

    return asked


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url, "basic.auth.user.info": "node:correct horse"}) as client:
        yield client


def test_what_javascript_writes_as_avro_python_reads(ask: Ask, client: SchemaRegistryClient) -> None:
    schema = {"type": "AVRO", "schema": ORDER_AVRO}
    answer = ask(register=schema, subject="orders-value", value={"id": "o1"})
    assert answer["decoded"] == {"id": "o1"}
    data = base64.b64decode(str(answer["data"]))
    assert AvroDeserializer(client)(data, VALUE) == {"id": "o1"}
    assert ask(latest="orders-value") == {"id": answer["id"]}


def test_what_python_writes_as_avro_javascript_reads(ask: Ask, client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER_AVRO)({"id": "o2"}, VALUE)
    assert data is not None
    assert ask(decode=base64.b64encode(data).decode())["decoded"] == {"id": "o2"}


def test_json_and_protobuf_work_from_javascript_too(ask: Ask, client: SchemaRegistryClient) -> None:
    answer = ask(register={"type": "JSON", "schema": ORDER_JSON}, subject="json-value", value={"id": "o1"})
    data = base64.b64decode(str(answer["data"]))
    assert JSONDeserializer(None, schema_registry_client=client)(data, VALUE) == {"id": "o1"}
    answer = ask(register={"type": "PROTOBUF", "schema": ORDER_PROTO}, subject="proto-value", value={"id": "o1"})
    assert answer["decoded"] == {"id": "o1"}
