"""Sealing: secret fields of a payload, from plain JSON to boxes and back. Pure: who has the keys is asked.

How a secret value travels is told in `contracts/boxes.py`.
AES-256-GCM, under the key of the person `of` in the tenant of the event. Associated data are tenant, person, kind, gap, event id,
type and path: a box that is moved elsewhere opens nowhere.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posthouse.contracts.boxes import (
    ERASED,
    MARK,
    SEALED,
    UNREADABLE,
    WITHHELD,
    Box,
    Gap,
    Revealed,
    box_in,
    is_withheld,
    replaced,
    stand_in,
)
from posthouse.errors import ContractError, FrameRefused, RuleBroken
from posthouse.events import Event
from posthouse.events.codecs.attributes import is_json
from posthouse.redaction import CARRIED
from posthouse.seam.outward import FIRST_ID
from posthouse.trust.secrets.fields import Fields, Secret
from posthouse.trust.secrets.keystore import problem_of

NONCE = 12
NONCES = 64
VERSION = "posthouse.secret.1"
STANDS_FOR = ('"⟨'.encode(), b'"\\')
"""How the JSON of a text may begin that stands for a secret: as it is, or with an escape."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A box away from its event, with all that it is bound to. `proof`: that a saga was given it, and nobody made it up of a box
    that he saw. It becomes a secret of the same kind about the same person again, and nothing else."""

    bound: str
    type: str
    path: str
    box: Box
    proof: str = ""


class Erased(msgspec.Struct, frozen=True):
    """In place of a key: its person was erased."""

    at: float


Key = AESGCM | Erased
KeyOf = Callable[[str], Key]
"""The key of a person, by his id."""

_token = msgspec.json.Decoder(Token)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_scalar = msgspec.json.Decoder(str | int | None)
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


def holds_boxes(event: Event[bytes]) -> bool:
    """Whether there may be something secret in an event: in JSON alone, as it is known and was looked at when it came in."""
    return MARK in event.data and is_json(event.content_type)


# On the way out.


def subjects_in(event: Event[bytes], fields: Fields) -> set[str]:
    """The persons under whose keys an event is to be sealed."""
    found: set[str] = set()

    def note(raw: bytes, secret: Secret, path: str, of: str) -> bytes:
        found.add(of)
        return raw

    _Walk(event, note).into(event.data, fields, "")
    return found


def nonces() -> Iterator[bytes]:
    """One for each box of a flush: the system is asked once for many."""
    while True:
        some = os.urandom(NONCE * NONCES)
        for first in range(0, len(some), NONCE):
            yield some[first : first + NONCE]


def sealed(
    event: Event[bytes],
    fields: Fields,
    key_of: KeyOf,
    nonces: Iterator[bytes],
    *,
    conceal: bool = False,
    edited: bool = False,
) -> Event[bytes]:
    """The event with its secret fields in boxes. RuleBroken for data about somebody who was erased. With `conceal` what is plain is
    left out rather than sealed, and no key is needed. `edited`: what is in a box already stays there."""
    tenant, type, bound = event.tenant, event.type, _bound_id(event)

    def seal(raw: bytes, secret: Secret, path: str, of: str) -> bytes:
        gap: Gap = "text" if secret.text else "null"
        if edited and raw[:1] == b"{" and MARK in raw and (box := box_in(raw)) is not None:
            return raw if box.of == of else _gone(of, secret, gap)
        if raw.startswith(STANDS_FOR) and is_withheld(held := _text.decode(raw)):
            if conceal or (token := _token_in(held)) is None:
                return raw if conceal else _gone(of, secret, gap)
            if (token.box.of, token.box.kind) != (of, secret.kind):  # it would be read by others, or outlive him
                return _gone(of, secret, gap)
            if isinstance(key := key_of(of), Erased) or not _is_proven(key, event.tenant, token):
                return _gone(of, secret, gap)
            raw = _plain(key, event.tenant, token)
        elif conceal:
            return _encode(WITHHELD) if secret.text else b"null"
        key = key_of(of)
        if isinstance(key, Erased):
            raise RuleBroken(
                "erased",
                f"{event.type}: {path!r} is about {of!r} of tenant {event.tenant!r}, who was erased: it cannot be said again",
            )
        nonce, kind = next(nonces), secret.kind
        secured = nonce + key.encrypt(nonce, raw, _encode((VERSION, tenant, of, kind, gap, bound, type, path)))
        return _encode(Box(1, of, kind, gap, binascii.b2a_base64(secured, newline=False).decode("ascii")))

    return event.with_data(_Walk(event, seal).into(event.data, fields, ""))


def refuse_carried(event: Event[bytes], fields: Fields | None) -> None:
    """RuleBroken for a text that a saga was given to pass on, anywhere but as the whole of a secret field: readers would see it with
    its proof."""
    if b"sealed " not in event.data:
        return

    def put(raw: bytes, secret: Secret, path: str, of: str) -> bytes:
        return raw if _token_of_text(raw) is None else b"null"

    hidden = event if fields is None else event.with_data(_Walk(event, put).into(event.data, fields, ""))
    for _ in tokens_in(hidden.data.decode(errors="replace")):
        raise RuleBroken(
            "carried",
            f"{event.type}: an encrypted text that a saga passes on stands in a field that is not Personal, or is only a part of one: "
            "mark the field as the one it comes from, and let it hold that text alone",
        )


def refuse_boxes(event: Event[bytes], fields: Fields | None) -> None:
    """RuleBroken for what is said as a box in a place that is not secret: on its way in it would be opened, and quarantined."""
    if not holds_boxes(event):
        return
    hidden = event if fields is None else event.with_data(_Walk(event, lambda *_: b"null").into(event.data, fields, ""))
    for path, _ in boxes_in(hidden):
        raise RuleBroken(
            "reserved",
            f"{event.type}: {path!r} looks like an encrypted value, by its member '$secret', and is none: leave it out",
        )


def plain_in(event: Event[bytes], fields: Fields) -> list[tuple[str, str]]:
    """What is secret in an event and lies open in it, each with its path and with whom it is about."""
    found: list[tuple[str, str]] = []

    def note(raw: bytes, secret: Secret, path: str, of: str) -> bytes:
        boxed = raw[:1] == b"{" and MARK in raw and box_in(raw) is not None
        if not boxed and not (raw[:1] == b'"' and is_withheld(msgspec.json.decode(raw))):
            found.append((path, of))
        return raw

    _Walk(event, note).into(event.data, fields, "")
    return found


# On the way in.


def boxes_in(event: Event[bytes]) -> list[tuple[str, Box]]:
    """What is secret in an event, each with its path."""
    found: list[tuple[str, Box]] = []

    def note(path: str, box: Box) -> bytes:
        found.append((path, box))
        return b"null"

    replaced(event.data, "", note)
    return found


def opened(event: Event[bytes], key_of: KeyOf, kinds: Collection[str]) -> Event[bytes]:
    """The event as those see it who may read these kinds; `*` is all. FrameRefused for a box that was changed, or is not where
    it was made."""
    bound = _bound_id(event)

    def put(path: str, box: Box) -> bytes:
        if box.version == 0:
            return stand_in(box, ERASED)
        if box.kind not in kinds and "*" not in kinds:
            return stand_in(box, WITHHELD)
        key = key_of(box.of)
        if isinstance(key, Erased):
            return stand_in(box, ERASED)
        return _plain(key, event.tenant, Token(bound, event.type, path, box))

    return event.with_data(replaced(event.data, "", put))


def revealed(event: Event[bytes], keys: Mapping[str, Key]) -> Revealed:
    """The payload for the eyes of a person who may see all of it. What was erased, and what nothing here opens, is said so in its
    place: whoever looks at an event that was changed looks at the rest of it too."""
    bound = _bound_id(event)
    shown, erased, unreadable = dict[str, list[str]](), list[str](), list[str]()

    def put(path: str, box: Box) -> bytes:
        key = keys.get(box.of)
        if box.version == 0 or isinstance(key, Erased):
            erased.append(path)
            return _encode(ERASED)
        try:
            if key is None:
                raise FrameRefused("no key")
            plain = _plain(key, event.tenant, Token(bound, event.type, path, box))
        except FrameRefused:
            unreadable.append(path)
            return _encode(UNREADABLE)
        shown.setdefault(box.of, []).append(path)
        return plain

    return Revealed(replaced(event.data, "", put), shown, erased, unreadable)


def carried(event: Event[bytes], key_of: KeyOf) -> Event[bytes]:
    """The event as a saga sees it: what is text carries its secret on, with a proof that it was carried. FrameRefused as in
    `opened`."""
    bound = _bound_id(event)

    def put(path: str, box: Box) -> bytes:
        if box.version == 0 or box.gap != "text" or isinstance(key := key_of(box.of), Erased):
            return stand_in(box, ERASED)
        token = Token(bound, event.type, path, box)
        _plain(key, event.tenant, token)
        nonce = os.urandom(NONCE)
        proof = nonce + key.encrypt(nonce, b"", _carrying(event.tenant, token))
        token = msgspec.structs.replace(token, proof=base64.b64encode(proof).decode())
        return _encode(f"{SEALED}{base64.b64encode(_encode(token)).decode()}⟩")

    return event.with_data(replaced(event.data, "", put))


def withheld(event: Event[bytes]) -> Event[bytes]:
    """The event as somebody sees it who may read nothing."""
    return event.with_data(replaced(event.data, "", lambda _, box: stand_in(box, WITHHELD if box.version else ERASED)))


def tokens_in(text: str) -> Iterator[Token]:
    """What is carried on in some text, such as the state of a saga."""
    for found in CARRIED.finditer(text):
        if (token := _token_in(f"{SEALED}{found[1]}⟩")) is not None:
            yield token


def opens(key: AESGCM, tenant: str, token: Token) -> bool:
    """Whether a key opens a box."""
    try:
        _plain(key, tenant, token)
    except FrameRefused:
        return False
    return True


def token_of(event: Event[bytes], path: str, box: Box) -> Token:
    """A box with all that it is bound to."""
    return Token(_bound_id(event), event.type, path, box)


def _plain(key: AESGCM, tenant: str, token: Token) -> bytes:
    box = token.box
    try:
        secured = base64.b64decode(box.box, validate=True)
        if len(secured) <= NONCE or base64.b64encode(secured).decode() != box.box:
            raise ValueError
        associated = _associated(tenant, token.bound, token.type, token.path, box)
        return key.decrypt(secured[:NONCE], secured[NONCE:], associated)
    except (InvalidTag, ValueError, binascii.Error):
        raise FrameRefused(
            f"unreadable: {token.path!r} was not encrypted in this place of this event for this tenant and person, or was changed since"
        ) from None


def _is_proven(key: AESGCM, tenant: str, token: Token) -> bool:
    try:
        proof = base64.b64decode(token.proof, validate=True)
        key.decrypt(proof[:NONCE], proof[NONCE:], _carrying(tenant, token))
    except (InvalidTag, ValueError):
        return False
    return True


def _carrying(tenant: str, token: Token) -> bytes:
    return _encode(("posthouse.carried.1", tenant, token.bound, token.type, token.path, token.box))


def _associated(tenant: str, bound: str, type: str, path: str, box: Box) -> bytes:
    return _encode((VERSION, tenant, box.of, box.kind, box.gap, bound, type, path))


def _bound_id(event: Event[bytes]) -> str:
    """What a box is bound to; of timers apart from all others, so that no other event can pass for one."""
    first = event.extensions.get(FIRST_ID)
    return event.id if first is None else f"timer {first}"


def _gone(of: str, secret: Secret, gap: Gap) -> bytes:
    return _encode(Box(0, of, secret.kind, gap))


def _token_of_text(raw: bytes) -> Token | None:
    return _token_in(msgspec.json.decode(raw, type=str)) if raw[:1] == b'"' else None


def _token_in(text: str) -> Token | None:
    if not text.startswith(SEALED):
        return None
    try:
        return _token.decode(base64.b64decode(text[len(SEALED) : -1], validate=True))
    except (msgspec.MsgspecError, ValueError):
        return None


class _Walk:
    """Through the JSON of an event, along the secret fields of its class; all else stays as it is, byte for byte."""

    def __init__(self, event: Event[bytes], put: Callable[[bytes, Secret, str, str], bytes]) -> None:
        self._event = event
        self._put = put
        self._top: Mapping[str, msgspec.Raw] = {}
        """The fields of the payload, as they were."""
        self._roots: dict[tuple[str, ...], str] = {}

    def into(self, raw: bytes, fields: Fields, path: str) -> bytes:
        raw = raw.strip()
        if raw[:1] == b"[":
            inner = fields.inner.get("*", fields)
            items = [bytes(item) for item in _array.decode(raw)]
            return _encode([msgspec.Raw(self._at(item, inner, f"{path}{n}", {})) for n, item in enumerate(items)])
        if raw[:1] != b"{":
            return raw
        held = _object.decode(raw)
        if not path:
            self._top = held.copy()
        known = fields.inner
        every, changed = known.get("*"), False
        for name in known if every is None else list(held):
            there, value = known.get(name, every), held.get(name)
            if there is not None and value is not None:
                held[name] = msgspec.Raw(self._at(bytes(value), there, f"{path}{name}", held))
                changed = True
        return _encode(held) if changed else raw

    def _at(self, raw: bytes, fields: Fields, path: str, beside: dict[str, msgspec.Raw]) -> bytes:
        secret = fields.secret
        if secret is None:
            return self.into(raw, fields, f"{path}.")
        if raw == b"null":
            return raw
        of = _id(beside.get(secret.beside)) if secret.beside else self._root(secret.root)
        if not of:
            where = secret.beside or ".".join(secret.root)
            raise ContractError(
                f"{self._event.type}: {path!r} is personal, and {where!r}, which says whom it is about, is empty"
            )
        if problem := problem_of(of):
            where = secret.beside or ".".join(secret.root)
            raise ContractError(
                f"{self._event.type}: {path!r} is personal, and {where!r}, which says whom it is about, {problem}"
            )
        return self._put(raw, secret, path, of)

    def _root(self, root: tuple[str, ...]) -> str:
        found = self._roots.get(root)
        if found is None:
            held: Mapping[str, msgspec.Raw] = self._top
            raw: msgspec.Raw | None = None
            for depth, name in enumerate(root):
                if depth:
                    inside = bytes(raw).strip() if raw is not None else b""
                    held = _object.decode(inside) if inside[:1] == b"{" else {}
                raw = held.get(name)
            found = self._roots[root] = _id(raw)
        return found


def _id(raw: msgspec.Raw | None) -> str:
    """Who is meant by a field: a text or a whole number; empty for anything else."""
    try:
        found = None if raw is None else _scalar.decode(bytes(raw))
    except msgspec.MsgspecError:
        return ""
    return "" if found is None or isinstance(found, bool) else str(found)
