"""Material: what CloudEvents' `dssematerial` extension signs, and how it is written: DSSE 1.0.2 over SHA-256 digests. No keys here.

https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/verifiability.md
"""

from __future__ import annotations

import binascii
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import lru_cache
from hashlib import sha256

import msgspec

from posthouse.events.envelope import Scalar, moment
from posthouse.seam.seals import SEAL

KIND = "https://cloudevents.io/verifiability/dsse/v0.1"
"""The payload type that says all of this."""
CONTRACTS = "application/vnd.posthouse.contracts"
"""The payload type of what a release publishes, so that its signature is none of a fact."""
NAME = SEAL
"""The extension that carries it."""
CORE = ("id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time")
"""The attributes of the core digest, in its order; the data comes behind them."""
CORE_BUT_TIME = CORE[:-1]

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
    core = core_of(attributes, data)
    ext = sha256(b"".join(digests_of(attributes, names))).digest() if names else None
    return Material(core, ext, names)


def core_of(attributes: Mapping[str, Scalar], data: bytes) -> bytes:
    """The digest of the core attributes and of the data."""
    digests = digests_of(attributes, CORE_BUT_TIME)
    digests += _digest_of_time(attributes.get("time")), sha256(data).digest()
    return sha256(b"".join(digests)).digest()


def digests_of(attributes: Mapping[str, Scalar], names: Sequence[str]) -> list[bytes]:
    """Those of attributes other than `time`."""
    said, known = attributes.get, _known.get
    return [known(value := said(name)) or digest(name, value) for name in names]


def payload_of(material: Material) -> bytes:
    """The JSON text that is signed."""
    core = b2a_base64(material.core, newline=False)
    if material.ext is None:
        return b'{"core":"%b"}' % core
    ext = b2a_base64(material.ext, newline=False)
    return b'{"core":"%b","ext":"%b","signedextattrs":%b}' % (core, ext, _list(tuple(material.names)))


def sealed_as(payload: bytes, keyid: str, signature: bytes) -> str:
    """The value of the extension attribute: the envelope's JSON in base64, as a binary attribute stands in JSON and in headers."""
    said, sig = b2a_base64(payload, newline=False), b2a_base64(signature, newline=False)
    envelope = b'{"payloadType":%b,"payload":"%b","signatures":[{"keyid":%b,"sig":"%b"}]}'
    return b2a_base64(envelope % (_text(KIND), said, _text(keyid), sig), newline=False).decode()


@lru_cache(maxsize=256)
def _list(names: tuple[str, ...]) -> bytes:
    return _write(names)


@lru_cache(maxsize=256)
def _text(text: str) -> bytes:
    return _write(text)


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
        return a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise BadMaterial("the signature is not base64") from error


def digest(name: str, value: Scalar | None) -> bytes:
    """That of one attribute other than `time`. What many events say alike is remembered."""
    if not isinstance(value, str):
        if isinstance(value, bool):
            value = "true" if value else "false"
        return _NOTHING if value is None else sha256(str(value).encode()).digest()
    found = sha256(value.encode()).digest()
    if name not in _EACH_ITS_OWN and len(value) <= _SHORT:
        if len(_known) >= _MOST:
            _known.clear()
        _known[value] = found
    return found


_known: dict[object, bytes] = {}
"""Digests of short texts. Whatever is no text is in no text's place: it equals none."""
_EACH_ITS_OWN = frozenset(
    ("id", "exacttime", "sequence", "correlationid", "causationid", "idempotencykey", "dualof", "streamversion")
)
"""What hardly two events say alike."""
_SHORT, _MOST = 128, 4_096
"""Characters of a text that is remembered, and how many of them: what strangers send must not fill our memory."""


def _digest_of_time(value: Scalar | None) -> bytes:
    """That of `time`, which is cut to the second."""
    if isinstance(value, str) and value:
        value = _second_of(value)
    return _known.get(value) or digest("time", value)


@lru_cache(maxsize=256)
def _cut(text: str) -> str:
    try:
        said = moment(text).astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise BadMaterial(f"its time {text!r:.40} is none in UTC") from error
    return f"{said.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _second_of(text: str) -> str:
    """A time in UTC, cut to the second, as the extension says."""
    if len(text) == 27 and text[-1] == "Z" and text[19] == "." and text[17:19] != "60":  # as we write it
        return f"{text[:19]}Z"
    return _cut(text)
