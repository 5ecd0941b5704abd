"""Material: what CloudEvents' `dssematerial` extension signs, and how it is written: DSSE 1.0.2 over SHA-256 digests. No keys here.

https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/verifiability.md
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import lru_cache
from hashlib import sha256

import msgspec

from posthouse.events.envelope import Scalar, moment
from posthouse.seam.seals import SEAL

KIND = "https://cloudevents.io/verifiability/dsse/v0.1"
"""The payload type that says all of this."""
NAME = SEAL
"""The extension that carries it."""
CORE = ("id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time")
"""The attributes of the core digest, in its order; the data comes behind them."""

MOST_SIGNATURES = 4
"""More in one event are nobody's: whoever adds them wants us to compute."""
LONGEST = 8_192
"""Characters of material that are looked at."""

_NOTHING = sha256(b"").digest()


class BadMaterial(ValueError):
    """It is no material, or breaks a rule of the extension."""


class _Signature(msgspec.Struct, gc=False):
    sig: str
    keyid: str = ""


class _Envelope(msgspec.Struct, gc=False):
    payload: str
    payloadType: str  # the name on the wire
    signatures: list[_Signature]


class Material(msgspec.Struct, frozen=True, gc=False):
    """What was signed of an event: the digests, and the names of the extension attributes in the second one."""

    core: bytes
    ext: bytes | None
    names: Sequence[str]


class _Body(msgspec.Struct, gc=False):
    core: str
    ext: str | None = None
    signedextattrs: list[str] | None = None


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """A DSSE envelope: `payload` as it was signed, and who signed it, by key id."""

    payload: bytes
    signatures: Sequence[tuple[str, bytes]]


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_body = msgspec.json.Decoder(_Body).decode
_write = msgspec.json.Encoder().encode


def pae(kind: str, payload: bytes) -> bytes:
    """What DSSE signs in place of the payload alone: its type and its length are bound to it."""
    said = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(said), said, len(payload), payload)


def digest_of(attributes: Mapping[str, Scalar], data: bytes, names: Sequence[str]) -> Material:
    """What there is to sign of an event. `names` are extension attributes; those that it has not count as empty."""
    core = [_digest(name, attributes.get(name)) for name in CORE]
    core.append(sha256(data).digest())
    ext = sha256(b"".join([_digest("", attributes.get(name)) for name in names])).digest() if names else None
    return Material(sha256(b"".join(core)).digest(), ext, names)


def payload_of(material: Material) -> bytes:
    """The JSON text that is signed."""
    core = base64.b64encode(material.core).decode()
    ext = None if material.ext is None else base64.b64encode(material.ext).decode()
    written = {"core": core} if ext is None else {"core": core, "ext": ext, "signedextattrs": list(material.names)}
    return _write(written)


def sealed_as(payload: bytes, keyid: str, signature: bytes) -> str:
    """The value of the extension attribute: the envelope's JSON in base64, as a binary attribute stands in JSON and in headers."""
    envelope = {
        "payloadType": KIND,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": keyid, "sig": base64.b64encode(signature).decode()}],
    }
    return base64.b64encode(_write(envelope)).decode()


def opened(value: object) -> Sealed:
    """The envelope in an extension attribute. Raises BadMaterial."""
    if not isinstance(value, str) or len(value) > LONGEST:
        raise BadMaterial("the signature is no text, or far too long")
    try:
        envelope = _read_envelope(_unbase64(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMaterial("the signature is no DSSE envelope") from error
    if envelope.payloadType != KIND:
        raise BadMaterial(f"the signature is of the kind {envelope.payloadType!r:.80}, which is not read here")
    if not 0 < len(envelope.signatures) <= MOST_SIGNATURES:
        raise BadMaterial(f"{len(envelope.signatures)} signatures: 1 to {MOST_SIGNATURES} are looked at")
    signatures = [(one.keyid, _unbase64(one.sig)) for one in envelope.signatures]
    return Sealed(_unbase64(envelope.payload), signatures)


def material_in(payload: bytes) -> Material:
    """What a payload says was signed. Raises BadMaterial for what the extension forbids."""
    try:
        body = _read_body(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMaterial("what was signed is no verification material") from error
    if (body.ext is None) is not (body.signedextattrs is None):
        raise BadMaterial("ext and signedextattrs come together or not at all")
    names = body.signedextattrs or ()
    if len(set(names)) != len(names) or NAME in names or not _NO_CORE.isdisjoint(names):
        raise BadMaterial("signedextattrs repeats a name, or has one that is none of an extension")
    return Material(_hash(body.core), None if body.ext is None else _hash(body.ext), names)


_NO_CORE = frozenset(CORE)


def _hash(text: str) -> bytes:
    found = _unbase64(text)
    if len(found) != len(_NOTHING):
        raise BadMaterial("a digest is not 32 bytes long")
    return found


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMaterial("the signature is not base64") from error


def _digest(name: str, value: Scalar | None) -> bytes:
    if value is None or value == "":
        return _NOTHING
    if name == "time" and isinstance(value, str):
        value = _second_of(value)
    if isinstance(value, bool):
        value = "true" if value else "false"
    return sha256(str(value).encode()).digest()


@lru_cache(maxsize=256)
def _cut(text: str) -> str:
    return moment(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _second_of(text: str) -> str:
    """A time in UTC, cut to the second, as the extension says."""
    if len(text) == 27 and text[-1] == "Z" and text[19] == "." and text[17:19] != "60":  # as we write it
        return f"{text[:19]}Z"
    return _cut(text)
