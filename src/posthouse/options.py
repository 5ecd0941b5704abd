"""Options: what users may say, checked where they say it. Annotations are the rules: a value that does not fit its own is answered
with what to write, a name that there is not with what was perhaps meant."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import wraps
from pathlib import PurePath
from typing import Annotated, Literal, ParamSpec, Self, TypeVar, dataclass_transform
from urllib.parse import parse_qsl

import msgspec

from posthouse.errors import LONGEST, ConfigurationError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

SECONDS = "seconds"
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST, description=SECONDS)]
SomeSeconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST, description=SECONDS)]
"""More than none."""
LeaseSeconds = Annotated[float, msgspec.Meta(ge=1, le=LONGEST, description=SECONDS)]
"""A lease that is renewed in time, also by a busy process."""
Wait = Annotated[float, msgspec.Meta(le=LONGEST)]
"""Seconds; those of less than none are over."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|[smhd])?(?:ec|in|econd|inute|our|ay)?s?\s*", re.IGNORECASE)
_WORDS: Mapping[object, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    date: "a day, as in date(2027, 1, 31)",
    type: "a class",
    Callable: "a function",
    Mapping: "a mapping",
}


_FAR: Mapping[object, str] = {LONGEST: f"{LONGEST:,.0f} (ten years) at most", 2**63 - 1: f"{2**63 - 1:,} at most"}
"""Limits that are told to those alone who pass them."""

_known: dict[object, Mapping[str, object]] = {}
"""What was resolved before, by class and function."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """Options that belong together: a frozen dataclass, of what its annotations allow. ConfigurationError with every problem."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __new__(cls, *values: object, **given: object) -> Self:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # every subclass is a dataclass
        problems = [_no_option(cls.__name__, name, known) for name in given if name not in known]
        if values:
            problems.append(f"{cls.__name__} takes its options by name, as in {cls.__name__}({known[0]}=…)")
        if problems:
            raise ConfigurationError(*problems)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        problems = list(_misfits(type(self).__name__, iter(vars(self).items()), _hints(type(self))))
        if problems or (problems := self.conflicts()):
            raise ConfigurationError(*problems)

    def conflicts(self) -> list[str]:
        """What cannot work although each option fits, one sentence each."""
        return []


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The same function; its arguments must fit its annotations. For what is declared once, not for what is done all the time."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = _given(owner, signature, args, kwargs)
        if problems := list(_misfits(owner, given, _hints(function))):
            raise ConfigurationError(*problems)
        return function(*args, **kwargs)

    return call


def misfit(owner: str, name: str, value: object, hint: object) -> str:
    """What is wrong with a value, and what to write instead; empty when it fits."""
    if _fits(value, hint):
        return ""
    return f"{owner}({name}={_shown(value)}): it is {_said(hint)}{_too_far(value, hint)}{_instead(name, value, hint)}"


def moment_of(owner: str, at: datetime) -> float:
    """A moment in seconds since 1970. ConfigurationError for what is no datetime, or has no time zone."""
    if not isinstance(at, datetime):
        raise ConfigurationError(f"{owner}(at={_shown(at)}): it is a datetime with a time zone")
    if at.utcoffset() is None:
        raise ConfigurationError(
            f"{owner}(at={at.isoformat(' ')}) has no time zone, so that nobody knows which moment it is: write "
            "at=datetime(…, tzinfo=ZoneInfo('Asia/Kabul')), or tzinfo=UTC"
        )
    return at.timestamp()


def said_twice(query: str) -> list[str]:
    """Sentences on what a URL's options say more than once."""
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    return [
        f"the URL says {name!r} more than once, and could mean either: leave one out"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def too_long(options: msgspec.Struct) -> list[str]:
    """Sentences on the seconds that a URL says and nobody can mean."""
    found = ((name, getattr(options, name)) for name in options.__struct_fields__)
    return [
        f"{name}={value:g} does not fit: seconds, {_FAR[LONGEST]}"
        for name, value in found
        if isinstance(value, float) and not value <= LONGEST
    ]


def _misfits(owner: str, given: Iterator[tuple[str, object]], hints: Mapping[str, object]) -> Iterator[str]:
    return (found for name, value in given if name in hints and (found := misfit(owner, name, value, hints[name])))


def _given(
    owner: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """Names and values; several where one argument takes several."""
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
        if problems := [_no_option(owner, name, known[1:]) for name in kwargs if name not in known]:
            raise ConfigurationError(*problems)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        raise ConfigurationError(_unbound(owner, signature, args, kwargs)) from None
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, one) for one in value)
        else:
            yield name, value


def _unbound(owner: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Why arguments do not fit a signature: too many, or too few of them."""
    places = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) > len(places):
        named = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        return f"{owner} takes {', '.join(places[1:])} by place, and the rest by name: {', '.join(f'{n}=…' for n in named)}"
    wanted = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    lacking = [name for name in wanted[len(args) :] if name not in kwargs]
    if lacking == ["function"]:
        return f"@{owner} is written without parentheses, above a function"
    return f"{owner} needs {', '.join(lacking)} too"


def _no_option(owner: str, name: str, known: Collection[str]) -> str:
    return f"{owner} has no option {name!r}.{did_you_mean(name, known)}"


def _hints(of: object) -> Mapping[str, object]:
    found = _known.get(of)
    if found is None:
        found = _known[of] = typing.get_type_hints(of, include_extras=True)
    return found


# Whether a value fits.


def _fits(value: object, hint: object) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _fits(value, arguments[0]) and all(_within(value, meta) for meta in arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or hint
    if not isinstance(kind, type) or kind is object:
        return True  # a type variable: whatever comes
    if kind is type:
        wanted = arguments[0] if arguments and isinstance(arguments[0], type) else object
        return isinstance(value, type) and issubclass(value, wanted)
    if getattr(kind, "_is_protocol", False) and kind.__module__.startswith("posthouse."):
        return all(callable(getattr(value, name, None)) for name in _methods(kind)) and not isinstance(value, type)
    if not isinstance(value, kind) or (
        issubclass(kind, Collection) and isinstance(value, str | bytes) and kind is not str
    ):
        return False
    if isinstance(value, Mapping) and len(arguments) == 2:
        return all(_fits(key, arguments[0]) and _fits(one, arguments[1]) for key, one in value.items())
    if issubclass(kind, Collection) and arguments and isinstance(value, Collection) and not isinstance(value, Mapping):
        return all(_fits(one, arguments[0]) for one in value)
    return True


def _within(value: object, meta: object) -> bool:
    if not isinstance(meta, msgspec.Meta) or not isinstance(value, int | float):
        return True
    return (
        (meta.gt is None or value > meta.gt)
        and (meta.ge is None or value >= meta.ge)
        and (meta.le is None or value <= meta.le)
    )


def _methods(protocol: type) -> list[str]:
    return [
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False)
        for name, found in vars(base).items()
        if inspect.isfunction(found) and not name.startswith("_")
    ]


# What would.


def _said(hint: object) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{_said(arguments[0])}{''.join(map(_limits, arguments[1:]))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_said(one) for one in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    kind = origin or hint
    if kind is type and arguments and arguments[0] is not object and isinstance(arguments[0], type):
        return "an exception class" if arguments[0] is Exception else f"{_a(arguments[0].__name__)} class"
    if kind is Mapping and len(arguments) == 2:
        return f"a mapping of {_said(arguments[0])} to {_said(arguments[1])}"
    if kind in _WORDS:
        return _WORDS[kind]
    if isinstance(kind, type) and issubclass(kind, Collection):
        return f"{'a tuple' if kind is tuple else 'a list'}, each {_said(arguments[0]) if arguments else 'of anything'}"
    return _a(getattr(kind, "__name__", str(kind)))


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _limits(meta: object) -> str:
    if not isinstance(meta, msgspec.Meta):
        return ""
    unit = f" of {meta.description}" if meta.description else ""
    if meta.gt is not None:
        return f"{unit} above {meta.gt}"
    if meta.ge is not None:
        return (
            f"{unit}, {meta.ge} or more"
            if meta.le is None or meta.le in _FAR
            else f"{unit} from {meta.ge} to {meta.le}"
        )
    return unit


def _too_far(value: object, hint: object) -> str:
    """`, 315,360,000 (ten years) at most`, or nothing."""
    if typing.get_origin(hint) is not Annotated:
        return next(filter(None, (_too_far(value, one) for one in typing.get_args(hint))), "")
    limits = (meta.le for meta in typing.get_args(hint)[1:] if isinstance(meta, msgspec.Meta) and meta.le in _FAR)
    is_number = isinstance(value, int | float)
    return next((f", {_FAR[le]}" for le in limits if le is not None and is_number and value > le), "")  # type: ignore[operator]


def _instead(name: str, value: object, hint: object) -> str:
    """` Did you mean 'key'?`, `: write deadline=10.0`, or nothing where nobody could guess."""
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin is Literal and isinstance(value, str):
            return f".{did_you_mean(value, map(str, arguments))}"
        if one is str and isinstance(value, PurePath):
            return f": write {name}='sqlite:///{value}'" if name == "store" else f": write {name}={str(value)!r}"
        if (better := _converted(value, one)) is not None and _fits(better, hint):
            return f": write {name}={better!r}"
        if isinstance(one, type) and value is one:
            return f": write {name}={one.__name__}(…)"
        if origin in (tuple, Sequence, Collection, list) and arguments:
            several = [value] if _fits(value, arguments[0]) else value
            if isinstance(several, list | set | tuple) and all(_fits(each, arguments[0]) for each in several):
                return f": write {name}={_shown((*several,) if origin is tuple else [*several])}"
    return ""


def _alternatives(hint: object) -> Iterator[object]:
    if typing.get_origin(hint) is Annotated:
        yield from _alternatives(typing.get_args(hint)[0])
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for one in typing.get_args(hint):
            yield from _alternatives(one)
    else:
        yield hint


def _converted(value: object, hint: object) -> object:
    """What was meant, where a value says it in another type."""
    if hint in (float, int):
        number = _number(value)
        if number is None or (hint is int and not number.is_integer()):
            return None
        return number if hint is float else int(number)
    if hint is bool and str(value).lower() in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return str(value).lower() in ("true", "1", "yes", "on")
    if hint is str and value is not None and not isinstance(value, type | bool | Collection) and not callable(value):
        return str(value)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        return float(found[1]) * _UNITS[(found[2] or "").lower()]
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


def _shown(value: object) -> str:
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__name__
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    text = (
        hex(value) if isinstance(value, int) and abs(value) > 2**1024 else repr(value)
    )  # too many digits cannot be said
    return text if len(text) <= 60 else f"{text[:57]}…"
