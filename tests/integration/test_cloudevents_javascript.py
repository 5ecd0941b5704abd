"""The official CloudEvents SDK for JavaScript reads what we write, and we read what it writes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from posthouse.events import BINARY, STRUCTURED, Actor, Codec, Event, decode_any

SDK = "cloudevents@10.0.0"
ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache" / "js"
SCRIPT = Path(__file__).parent / "js" / "cloudevents.mjs"
MODES = pytest.mark.parametrize("codec", [STRUCTURED, BINARY], ids=["structured", "binary"])

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js with the SDK beside it, installed once into `.cache/js`."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        reason = "node and npm are not installed: the JavaScript side of CloudEvents was NOT checked"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    _install(npm)
    return program


def _install(npm: str) -> None:
    manifest = HOME / "node_modules" / "cloudevents" / "package.json"
    if manifest.exists() and json.loads(manifest.read_text())["version"] == SDK.partition("@")[2]:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", SDK]
    try:
        subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True, timeout=180)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        last = (error.stderr or str(error)) if isinstance(error.stderr, str | None) else "timed out"
        pytest.skip(f"THE NPM REGISTRY DID NOT GIVE {SDK}, the JavaScript side was NOT checked: {last.strip()[-300:]}")


def _ask(node: str, **task: object) -> Any:
    done = subprocess.run(
        [node, str(SCRIPT), str(HOME / "package.json")],
        input=json.dumps(task) + "\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _theirs(node: str, codec: Codec, event: Event[bytes]) -> Any:
    headers, body = codec.encode(event)
    return _ask(node, read={"headers": headers, "body": base64.b64encode(body).decode()})


def _ours(node: str, codec: Codec, **write: object) -> Event[bytes]:
    message = _ask(node, write=write, mode=codec.name)
    headers = {name.lower(): value for name, value in message["headers"].items()}
    return decode_any(headers, base64.b64decode(message["body"]))


@MODES
def test_the_sdk_reads_our_events(node: str, codec: Codec) -> None:
    event: Event[bytes] = Event(
        id="0190b3c0-7b1a-7def-8a3b-0123456789ab",
        type="shop.orders.order.placed.v1",
        source="shop.orders",
        data=b'{"order_id":"o1","note":"gr\xc3\xbc\xc3\x9f"}',
        time="2026-01-02T03:04:05.678Z",
        tenant="t1",
        key="o1",
        sequence=42,
        actor=Actor(kind="user", id="u1"),
        schema="https://example.org/orders/order/placed/v1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        extensions={"colour": "blau"},
    )
    theirs = _theirs(node, codec, event)
    assert theirs["data"] == {"order_id": "o1", "note": "grüß"}
    assert theirs["attributes"] == {
        "specversion": "1.0",
        "id": event.id,
        "type": event.type,
        "source": "shop.orders",
        "time": event.time,
        "subject": "o1",
        "datacontenttype": "application/json",
        "dataschema": event.schema,
        "tenantid": "t1",
        "partitionkey": "t1:o1",
        "sequence": "00000000000000000042",
        "actorkind": "user",
        "actorid": "u1",
        "traceparent": event.traceparent,
        "colour": "blau",
    }


@MODES
def test_the_sdk_reads_our_binary_data(node: str, codec: Codec) -> None:
    event: Event[bytes] = Event(
        id="1", type="shop.file.uploaded.v1", source="s", data=b"\x89PNG\xff", time="", content_type="image/png"
    )
    assert base64.b64decode(_theirs(node, codec, event)["bytes"]) == event.data


@MODES
def test_we_read_the_events_of_the_sdk(node: str, codec: Codec) -> None:
    attributes = {
        "id": "1",
        "source": "/shop/orders",
        "type": "com.example.made",
        "time": "2026-01-02T03:04:05.678Z",
        "subject": "o1",
        "datacontenttype": "application/json",
        "dataschema": "https://example.org/schema",
        "tenantid": "t1",
        "correlationid": "01HZXW5N5V5V5V5V5V5V5V5V5V",
        "foreign": "a-b",
    }
    event = _ours(node, codec, event={**attributes, "data": {"note": "grüß", "n": [1, None, 1.5]}})
    assert json.loads(event.data) == {"note": "grüß", "n": [1, None, 1.5]}
    assert event == Event(
        id="1",
        source="/shop/orders",
        type="com.example.made",
        time="2026-01-02T03:04:05.678Z",
        key="o1",
        schema="https://example.org/schema",
        tenant="t1",
        correlation="01HZXW5N5V5V5V5V5V5V5V5V5V",
        extensions={"foreign": "a-b"},
        data=event.data,
    )


@MODES
def test_we_read_the_bytes_of_the_sdk(node: str, codec: Codec) -> None:
    attributes = {"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/octet-stream"}
    event = _ours(node, codec, event=attributes, bytes=base64.b64encode(b"\x00\xff").decode())
    assert event.data == b"\x00\xff"
