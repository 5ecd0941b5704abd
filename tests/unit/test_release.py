"""The papers of a release: what they name, and that nobody has to believe them."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.papers import bill, checksums, constraints
from release.parts import NOT_RUN, Part, parts_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = [*PROJECT["dependencies"], *(line for extra in EXTRAS if extra not in NOT_RUN for line in EXTRAS[extra])]
NEEDED = sorted({canonicalize_name(Requirement(line).name) for line in LINES})
UNBOUNDED = ("django",)
"""The user's own framework, which says years before what it will break."""
PARTS = parts_of()
HASHES = {part.name: hashlib.sha256(part.name.encode()).hexdigest() for part in PARTS}


@pytest.mark.parametrize("name", NEEDED)
def test_the_bill_names_every_dependency_of_the_run_time_with_version_and_licence(name: str) -> None:
    said = json.loads(bill(PARTS, HASHES, 0))
    (component,) = [each for each in said["components"] if each["name"] == name]
    assert component["version"] == version(name)
    assert component["licenses"]
    assert component["hashes"] == [{"alg": "SHA-256", "content": HASHES[name]}]
    assert component["purl"] == f"pkg:pypi/{name}@{version(name)}"


def test_what_dependencies_need_is_named_too_and_what_only_developers_need_is_not() -> None:
    names = {part.name for part in PARTS}
    assert {"click", "cryptography", "grpcio"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hatchling", "matplotlib"}
    assert [part.name for part in PARTS if not part.licence] == []


def test_the_bill_is_the_same_for_the_same_parts() -> None:
    assert bill(PARTS, HASHES, 1_700_000_000) == bill(PARTS, HASHES, 1_700_000_000)
    said = json.loads(bill(PARTS, HASHES, 1_700_000_000))
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    assert said["metadata"]["component"]["name"] == "posthouse"
    assert said["metadata"]["timestamp"].startswith("2023-11-14")


def test_constraints_pin_each_part_by_version_and_hash_and_name_no_host() -> None:
    text = constraints(PARTS[1:], HASHES, "linux-x86_64")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(PARTS) - 1
    assert all(re.fullmatch(r"[a-z0-9-]+==[^ ]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert "://" not in text
    with pytest.raises(KeyError):
        constraints([Part("unseen", "1", "MIT")], {}, "linux-x86_64")


def test_checksums_are_read_by_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    assert checksums([tmp_path / "a.whl"]) == f"{hashlib.sha256(b'a').hexdigest()}  a.whl\n"


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_what_the_run_time_needs_is_bounded_before_the_next_break_and_holds_what_is_tested(line: str) -> None:
    requirement = Requirement(line)
    assert requirement.specifier.contains(version(requirement.name))
    bounded = any(each.operator == "<" for each in requirement.specifier)
    assert bounded or requirement.name in UNBOUNDED, f"{line}: name the next major version that nobody has tried"
