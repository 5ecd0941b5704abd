"""pydantic models, as JSON. Fields travel under their aliases, as pydantic's schema says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, cast, get_args

from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from posthouse.contracts.kept import changed
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
        if problems := _unheard(self._model, set()):
            raise ConfigurationError(*problems)
        document = self._model.model_json_schema(mode="serialization", schema_generator=_Generator)
        self.schema = json_schema(document)
        self.fields: Sequence[str] = fields_of(document)

    def encode(self, value: T) -> bytes:
        try:
            data = cast("BaseModel", value).model_dump_json(by_alias=True, warnings="error").encode()
            if may_lack_number(data) and (lost := not_finite(cast("BaseModel", value).model_dump(by_alias=True))):
                raise misfit(self.cls, lost)
            heard = self._model.model_validate_json(data)
            other = changed(value, heard, heard.model_dump_json(by_alias=True, warnings="none").encode() == data)
        except ContractError:
            raise
        except (ValueError, TypeError) as error:
            raise misfit(self.cls, error) from error
        if other:
            raise misfit(self.cls, other)
        return data

    def decode(self, data: bytes) -> T:
        try:
            return cast("T", self._model.model_validate_json(data))
        except ValueError as error:
            raise misfit(self.cls, error) from error


def _unheard(model: type[BaseModel], seen: set[type]) -> list[str]:
    """Fields that travel under a name by which nobody would read them: with a default, everybody would hear the default."""
    seen.add(model)
    problems = []
    for name, field in model.model_fields.items():
        said, heard = field.serialization_alias or name, _heard(model, name, field)
        if field.exclude is not True and said not in heard:
            problems.append(
                f"{model.__name__}.{name} would travel as {said!r} and be read as {' or '.join(map(repr, heard))}: give it one "
                f"name for both ways, as in Field(alias={said!r}); with ConfigDict(validate_by_name=True) it is made by its own"
            )
        for inner in _models(field.annotation):
            if inner not in seen:
                problems += _unheard(inner, seen)
    return problems


def _heard(model: type[BaseModel], name: str, field: FieldInfo) -> list[str]:
    """The names by which a field is read."""
    alias, config = field.validation_alias, model.model_config
    if alias is None or config.get("validate_by_alias") is False:
        return [name]
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    heard = [one if isinstance(one, str) else str(one.path[0]) for one in choices if not _is_deep(one)]
    return [*heard, name] if config.get("populate_by_name") or config.get("validate_by_name") else heard


def _is_deep(alias: str | AliasPath) -> bool:
    return isinstance(alias, AliasPath) and len(alias.path) > 1


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
