"""Masking: personal data leaves histories before they leave production, and the same value gets the same mask everywhere."""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Collection, Sequence

import msgspec

from posthouse.contracts import EventType
from posthouse.contracts.personal import personal_fields
from posthouse.processes import SagaType, SagaView
from posthouse.service import Service
from posthouse.store.sagas import SagaInput, SagaTurn, Said

DAY = re.compile(r"\d{4}-\d\d-\d\d")
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class Masks:
    """The masks of one file. A mask tells nothing of its value, and a method that only passes a value on says the same mask."""

    def __init__(self, service: Service) -> None:
        self._catalogue = service.declared.catalogue
        self._types = service.declared.saga_types
        self._key = secrets.token_bytes(32)

    def masked(self, view: SagaView) -> SagaView:
        """A history in which every field that is marked as personal, of payloads and of the state, holds a mask."""
        of = self._types[view.row.saga]
        paths = self._of_state(of)
        id = str(self._mask(view.row.id)) if of.correlate in paths else view.row.id
        state = bytes(self._json(msgspec.Raw(view.row.state), paths))
        row = msgspec.structs.replace(view.row, id=id, state=state, index={}, reason="", note="")
        return SagaView(row=row, history=[self._turn(of, turn) for turn in view.history])

    def _turn(self, of: SagaType, turn: SagaTurn) -> SagaTurn:
        return msgspec.structs.replace(
            turn,
            input=self._input(of, turn.input),
            published=tuple(self._said(said) for said in turn.published),
            state=self._json(turn.state, self._of_state(of)),
        )

    def _input(self, of: SagaType, given: SagaInput) -> SagaInput:
        if given.kind == "start":
            return msgspec.structs.replace(given, data=self._json(given.data, self._of_state(of)))
        event_type = of.event_types.get(given.type) or self._catalogue.get(given.type)
        if given.kind not in ("event", "answer"):
            return given
        paths = self._of_event(event_type)
        key = given.key
        if key is not None and event_type is not None and event_type.key in paths:
            key = str(self._mask(key))
        answer = self._json(given.answer, self._of_answers(of))
        return msgspec.structs.replace(given, key=key, data=self._json(given.data, paths), answer=answer)

    def _said(self, said: Said) -> Said:
        return msgspec.structs.replace(said, data=self._json(said.data, self._of_event(self._catalogue.get(said.type))))

    def _of_state(self, of: SagaType) -> Collection[str]:
        paths = personal_fields(of.cls)
        return {*paths, *(was for name, was in of.renamed.items() if name in paths)}

    def _of_answers(self, of: SagaType) -> Collection[str]:
        types = [call.answer for call in of.calls.values()]
        return {path for answer in types if isinstance(answer, type) for path in personal_fields(answer)}

    def _of_event(self, event_type: EventType[object] | None) -> Collection[str]:
        return () if event_type is None else personal_fields(event_type.payload.cls)

    def _json(self, data: msgspec.Raw, paths: Collection[str]) -> msgspec.Raw:
        if not paths:
            return data
        value = msgspec.json.decode(bytes(data))
        for path in paths:
            value = self._at(value, path.split("."))
        return msgspec.Raw(msgspec.json.encode(value))

    def _at(self, value: object, path: Sequence[str]) -> object:
        if not path:
            return self._mask(value)
        if isinstance(value, list):
            return [self._at(item, path[1:] if path[0] == "*" else path) for item in value]
        if isinstance(value, dict):
            return {name: self._at(part, path[1:]) if path[0] in ("*", name) else part for name, part in value.items()}
        return value

    def _mask(self, value: object) -> object:
        """Something of the same kind, so that it is read as the same type."""
        match value:
            case bool() | None:
                return value
            case int() | float():
                return type(value)(0)
            case list():
                return [self._mask(item) for item in value]
            case dict():
                return {name: self._mask(item) for name, item in value.items()}
        text = str(value)
        digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=16).digest()
        if DAY.fullmatch(text):
            return "1970-01-01"
        if MOMENT.fullmatch(text):
            return "1970-01-01T00:00:00Z"
        if UUID.fullmatch(text):
            return str(uuid.UUID(bytes=digest))
        if NUMBER.fullmatch(text):
            return "0"
        return f"masked-{digest.hex()[:12]}{'@example.org' if '@' in text else ''}"
