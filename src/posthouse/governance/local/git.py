"""Git: files as they are in some commit, read from the repository at hand. Nothing is checked out and nothing is written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from posthouse.errors import ConfigurationError, did_you_mean

PATIENCE = 60.0
"""Seconds for one question."""
BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""Where work is merged to, the best guess first."""
DEEPEN = "fetch its history: `git fetch --unshallow`, or `fetch-depth: 0` for actions/checkout"

_FILE_MODES = ("100644", "100755", "100664")


class Commit(NamedTuple):
    """A commit, and in words how it was come by."""

    id: str
    said: str


class Repository:
    """The repository that a folder lies in. Raises ConfigurationError for whatever cannot be had."""

    def __init__(self, folder: Path) -> None:
        self._at = next(place for place in (folder.resolve(), *folder.resolve().parents) if place.is_dir())
        found = self._run("rev-parse", "--show-toplevel")
        if found.returncode:
            said = found.stderr.decode("utf-8", "replace").partition("\n")[0].removeprefix("fatal: ")
            raise ConfigurationError(
                f"git finds no repository in {self._at} ({said}): compare with a bundle, as in --against last-release.tar.gz"
            )
        self.top = Path(found.stdout.decode("utf-8", "surrogateescape").rstrip("\n")).resolve()

    def commit(self, ref: str) -> Commit:
        """The commit of a name: a branch, a tag, an id."""
        found = self._resolved(ref)
        if found is None:
            raise ConfigurationError(self._unknown(ref))
        return Commit(found, f"{ref} ({found[:10]})" if not found.startswith(ref) else found[:10])

    def base(self) -> Commit:
        """What the work at hand goes back to: where it left the main branch; on the main branch itself the last tag, and
        without tags the last commit."""
        head = self._resolved("HEAD")
        if head is None:
            raise ConfigurationError("there is no commit yet to compare with: commit the frozen files first")
        left = next((base for name in BRANCHES if (base := self._left(name)) is not None), None)
        if left is not None and left.id != head:
            return left
        tag = self._ask("describe", "--tags", "--abbrev=0", "HEAD")
        if tag is not None:
            return Commit(self.commit(tag).id, f"the last tag, {tag}")
        if left is None or self._shallow():
            known = f"none of {', '.join(BRANCHES)} has history in common with this commit, and there is no tag"
            way_out = DEEPEN if self._shallow() else "name what to compare with: --against REF"
            raise ConfigurationError(f"{known}: {way_out}")
        return Commit(head, f"the last commit ({head[:10]})")

    def files(self, commit: Commit, folder: Path) -> Mapping[str, bytes]:
        """The files of a folder in a commit, by their path below it; none where the folder was not there."""
        prefix = self.path_of(folder)
        listed = self._output("ls-tree", "-r", "-z", "--full-tree", commit.id, *(["--", prefix] if prefix else []))
        blobs: dict[str, str] = {}
        for line in listed.decode("utf-8", "surrogateescape").split("\0"):
            described, _, path = line.partition("\t")
            if described.startswith(_FILE_MODES):
                blobs[path.removeprefix(f"{prefix}/")] = described.split(" ")[2]
        contents = dict(self._contents(sorted(set(blobs.values()))))
        return {path: contents[blob] for path, blob in blobs.items()}

    def path_of(self, place: Path) -> str:
        """A path as the repository says it: from its top, with slashes."""
        try:
            found = place.resolve().relative_to(self.top).as_posix()
        except ValueError:
            raise ConfigurationError(f"{place} is not in the repository {self.top}") from None
        return "" if found == "." else found

    def author(self) -> str:
        """Who would commit here, as git says it; empty where it does not know."""
        return self._ask("config", "user.email") or self._ask("config", "user.name") or ""

    def _left(self, branch: str) -> Commit | None:
        """Where the work at hand left a branch."""
        if self._resolved(branch) is None:
            return None
        base = self._ask("merge-base", "HEAD", branch)
        return None if base is None else Commit(base, f"where this left {branch} ({base[:10]})")

    def _contents(self, blobs: list[str]) -> Iterator[tuple[str, bytes]]:
        """Objects by id, all in one question."""
        if not blobs:
            return
        answer = self._output("cat-file", "--batch", text="".join(f"{blob}\n" for blob in blobs))
        position = 0
        for blob in blobs:
            end = answer.index(b"\n", position)
            head = answer[position:end].decode().split(" ")
            if len(head) != 3:
                raise ConfigurationError(f"git has no object {blob}: the clone is not whole; {DEEPEN}")
            start, size = end + 1, int(head[2])
            yield blob, answer[start : start + size]
            position = start + size + 1

    def _unknown(self, ref: str) -> str:
        names = (self._ask("for-each-ref", "--format=%(refname:short)") or "").splitlines()
        if self._shallow():
            return f"git knows no {ref!r} here, and this clone is shallow: {DEEPEN}"
        return f"git knows no {ref!r} in {self.top}, and no folder or archive is called that.{did_you_mean(ref, names)}"

    def _shallow(self) -> bool:
        return self._ask("rev-parse", "--is-shallow-repository") == "true"

    def _resolved(self, ref: str) -> str | None:
        return self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")

    def _ask(self, *words: str) -> str | None:
        """One line or more; None where git says no."""
        done = self._run(*words)
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None

    def _output(self, *words: str, text: str = "") -> bytes:
        done = self._run(*words, text=text)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise ConfigurationError(f"git {words[0]} failed in {self._at}: {said}")
        return done.stdout

    def _run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
        quiet = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        try:
            return subprocess.run(
                ["git", *words],
                cwd=self._at,
                env=quiet,
                input=text.encode(),
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except FileNotFoundError:
            raise ConfigurationError(
                "git is not installed here: install it, or compare with a bundle, as in --against last-release.tar.gz"
            ) from None
        except subprocess.TimeoutExpired:
            raise ConfigurationError(f"git {words[0]} took longer than {PATIENCE:g} s in {self._at}") from None
