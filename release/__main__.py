"""`python -m release FOLDER`: writes the papers beside the distributions that were built there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release.papers import bill, checksums, constraints, sha256_of
from release.parts import Part, parts_of


def seen(parts: Sequence[Part]) -> dict[str, str]:
    """The SHA-256 of the file of each part that pip would install here, from wherever it takes its packages."""
    with tempfile.TemporaryDirectory() as folder:
        report, wanted = Path(folder) / "report.json", Path(folder) / "wanted.txt"
        wanted.write_text("".join(f"{part.name}=={part.version}\n" for part in parts))
        command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--dry-run"]
        command += ["--no-deps", "--ignore-installed", "--report", str(report), "--requirement", str(wanted)]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    names = {part.name.replace("_", "-").lower(): part.name for part in parts}
    return {
        names[one["metadata"]["name"].replace("_", "-").replace(".", "-").lower()]: one["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for one in found
    }


def main(folder: Path) -> None:
    root, *others = parts_of()
    (wheel,) = folder.glob(f"{root.name}-{root.version}-*.whl")
    hashes = seen(others)
    (folder / "constraints.txt").write_text(constraints(others, hashes, sysconfig.get_platform()))
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    (folder / "sbom.cdx.json").write_text(bill([root, *others], {**hashes, root.name: sha256_of(wheel)}, moment))
    files = [file for file in folder.iterdir() if file.is_file() and file.name != "SHA256SUMS"]
    (folder / "SHA256SUMS").write_text(checksums(files))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
