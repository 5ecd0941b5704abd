"""Words of the command line that are already what a function wants.

Typer lets pydantic coerce every value, and importing that is a quarter of what `posthouse status` costs. A word that is to be
a str needs no coercion, nor does a default that nobody changed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

PLAIN = (str, int, float)


def spare_coercion() -> None:
    """Let Typer leave plain values as they are. One that has nothing to spare, or is made otherwise, stays as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        from typer import _coercion, core

        coercing = _coercion.build_runtime_param

        @dataclass(frozen=True)
        class Word(_coercion.RuntimeParam):
            def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
                if self.annotation in PLAIN and type(value) is self.annotation:
                    return value
                if self.annotation == list[str]:
                    return [*value]
                return coercing(param.type_descriptor)._coerce_value(value, param=param, ctx=ctx)

        def build(described: Any) -> Any:
            if described.parameter_info.parser is not None:
                return coercing(described)
            return Word(parameter_info=described.parameter_info, annotation=described.annotation)

        setattr(core, "build_runtime_param", build)  # noqa: B010 - it is not meant to be exported
