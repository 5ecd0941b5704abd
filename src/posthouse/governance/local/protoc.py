"""Protobuf's own compiler, run in a process of its own: it can be ended when it takes too long, and what it says is kept.

Texts are compiled by the official compiler instead of a parser of our own because it has the last word on what is valid.
It comes with the package grpcio-tools: `pip install 'posthouse[protobuf]'`.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from posthouse.errors import SchemaError

MAIN = "posthouse-main.proto"
"""The name that the text has while it is compiled."""
WELL_KNOWN = "google/protobuf/"
"""Files that come with the compiler."""

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")
_EMPTY = 'syntax = "proto3";\n'


def has_protoc() -> bool:
    """Whether the compiler is installed."""
    return importlib.util.find_spec("grpc_tools") is not None


def compiled(text: str, imports: Mapping[str, str], *, patience: float = 20.0) -> bytes:
    """A serialised FileDescriptorSet: everything that is imported, each after what it needs, and the text itself last.

    `imports` maps the names by which files are imported to their texts; Google's well-known types need not be there. Raises
    SchemaError with the compiler's own words, also after `patience` seconds. Blocks: call it in a thread.
    """
    for name in imports:
        _check_name(name)
    with tempfile.TemporaryDirectory(prefix="posthouse-protoc-") as folder:
        place = Path(folder)
        for name, content in {**imports, MAIN: text}.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8", errors="surrogatepass")
        _run(place, patience)
        return (place / "out").read_bytes()


def compiled_imports(imports: Mapping[str, str], wanted: list[str], *, patience: float = 20.0) -> bytes:
    """A serialised FileDescriptorSet of some imports and what they need, without a text of its own."""
    lines = "".join(f'import "{name}";\n' for name in wanted)
    for name in wanted:
        _check_name(name)
    return compiled(_EMPTY + lines, imports, patience=patience)


def _run(place: Path, patience: float) -> None:
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", f"-I{place}", "--include_imports"]
    try:
        done = subprocess.run(
            [*command, f"--descriptor_set_out={place / 'out'}", MAIN],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SchemaError(f"the compiler took longer than {patience:g} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").replace(f"{place}/", "").replace(MAIN, "the schema").strip()
        raise SchemaError(said[:2_000] or f"the compiler ended with code {done.returncode}")


def _check_name(name: str) -> None:
    if name == MAIN or len(name) > 200 or not _PATH.fullmatch(name):
        raise SchemaError(f"{name[:100]!r} cannot be the name of an imported file: use letters, digits, _ - . and /")
