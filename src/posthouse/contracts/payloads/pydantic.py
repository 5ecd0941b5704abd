"""pydantic models, as JSON. Fields travel under their aliases, as pydantic's schema says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from posthouse.contracts.normal import fields_of
from posthouse.contracts.payload import JSON, PayloadType, SelfExplaining, may_lack_number, misfit, not_finite
from posthouse.contracts.schema import json_schema
from posthouse.errors import ConfigurationError, ContractError

T = TypeVar("T")


class _Generator(GenerateJsonSchema):
    """Spells a decimal as msgspec does: it travels as text."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {"type": "string", "format": "decimal"}


def payload(cls: type[T]) -> PayloadType[T]:
    """The codec of a model."""
    try:
        return _PydanticPayload(cls)
    except PydanticInvalidForJsonSchema as error:
        raise ConfigurationError(f"{cls.__name__} has a field that cannot travel as JSON: {error.message}") from error


class _PydanticPayload(SelfExplaining, Generic[T]):
    content_type = JSON
    plain = None

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self._model = cast("type[BaseModel]", cls)
        document = self._model.model_json_schema(mode="serialization", schema_generator=_Generator)
        self.schema = json_schema(document)
        self.fields: Sequence[str] = fields_of(document)

    def encode(self, value: T) -> bytes:
        try:
            data = cast("BaseModel", value).model_dump_json(by_alias=True, warnings="error").encode()
            if may_lack_number(data) and (lost := not_finite(cast("BaseModel", value).model_dump(by_alias=True))):
                raise misfit(self.cls, lost)
            self._model.model_validate_json(data)
        except ContractError:
            raise
        except (ValueError, TypeError) as error:
            raise misfit(self.cls, error) from error
        return data

    def decode(self, data: bytes) -> T:
        try:
            return cast("T", self._model.model_validate_json(data))
        except ValueError as error:
            raise misfit(self.cls, error) from error
