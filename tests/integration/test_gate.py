"""The gate in a repository: a small service, its CI script, and changes that do and do not pass."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from posthouse import Payload, Service
from posthouse.governance.bundle import Bundle
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ROOT = Path(__file__).parents[2]

SHOP = """
from posthouse import Event, Service, Tx

orders = Service("orders", namespace="shop", owner="team checkout")
billing = Service("billing", namespace="shop", owner="team finance")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str
    total_cents: int
    note: str = ""


@billing.on(OrderPlaced, reads=["order_id", "total_cents"])
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...


@billing.on(OrderPlaced, reads=["note"], consumer="greetings")
async def greet(event: Event[OrderPlaced], tx: Tx) -> None: ...
"""

CI = """#!/bin/sh
set -e
posthouse catalog check shop:orders shop:billing
posthouse schema check shop:orders shop:billing
"""

DOWNCAST = """
@orders.downcast(OrderPlacedV2, to=OrderPlaced)
def as_before(new: OrderPlacedV2) -> OrderPlaced:
    return OrderPlaced(order_id=new.order_id, total_cents=new.total, note=new.note)


"""

RENAMED = ("total_cents", "total")
ADDED = ('    note: str = ""\n', '    note: str = ""\n    voucher: str = ""\n')
SCHEMA = "event-schemas/orders/order/placed/v1.json"


class Shop:
    """A git repository with a service in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GITHUB_"))},
            "PATH": programs,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }

    def open(self) -> None:
        """Make the repository, with one commit."""
        self.folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.email", "ann@example.com")
        self.git("config", "user.name", "Ann")
        (self.folder / "shop.py").write_text(SHOP)
        (self.folder / "ci.sh").write_text(CI)
        self.freeze()
        self.save("the shop opens")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    def git(self, *words: str) -> str:
        done = self.run("git", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def save(self, said: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", said)

    def freeze(self, *options: str) -> None:
        done = self.run("posthouse", "catalog", "freeze", "shop:orders", "shop:billing", *options)
        assert done.returncode == 0, done.stderr

    def change(self, old: str, new: str) -> None:
        file = self.folder / "shop.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def check(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("posthouse", "schema", "check", *options)


@pytest.fixture(scope="module")
def first_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Shop(tmp_path_factory.mktemp("gate") / "repository")
    made.open()
    return made.folder


@pytest.fixture
def shop(first_day: Path, tmp_path: Path) -> Shop:
    return Shop(shutil.copytree(first_day, tmp_path / "repository"))


def test_a_breaking_change_fails_the_ci_of_its_repository_with_words_that_a_newcomer_understands(shop: Shop) -> None:
    assert shop.run("sh", "ci.sh").returncode == 0
    shop.git("checkout", "--quiet", "-b", "nicer-names")
    shop.change(*RENAMED)
    shop.freeze()
    shop.save("nicer names")
    done = shop.run("sh", "ci.sh")
    assert done.returncode == 1
    for said in (
        "✗ shop.orders.order.placed.v1  /total_cents  field-removed",
        '"total_cents" is no longer declared. Was it renamed to "total"? A rename is a removal for everyone who reads it.',
        "old readers of new data",
        "read by  shop.invoice (billing)",
        'example  {"order_id":"a","total":0}',
        "leave v1 as it was, declare shop.orders.order.placed.v2 beside it, and publish both until nobody reads v1.",
        f"file     {SCHEMA}:",
        "this change must not pass (ADDITIVE): 2 errors; 1 schema, 1 changed, against where this left main (",
    ):
        assert said in done.stdout
    assert "greet" not in done.stdout, "it reads the note alone"


def test_a_change_that_harms_nobody_passes_the_ci(shop: Shop) -> None:
    shop.git("checkout", "--quiet", "-b", "vouchers")
    shop.change(*ADDED)
    shop.freeze()
    done = shop.run("sh", "ci.sh")
    assert done.returncode == 0, done.stdout
    assert "this change may pass (ADDITIVE): no findings; 1 schema, 1 changed" in done.stdout


def test_code_that_was_not_frozen_fails_too(shop: Shop) -> None:
    shop.change(*RENAMED)
    done = shop.check("shop:orders", "shop:billing")
    assert done.returncode == 1
    assert "changed without a new version" in done.stdout
    assert "/total_cents  field-removed" in done.stdout
    assert shop.check().returncode == 0, "the frozen files alone did not change"


def test_a_new_version_passes_beside_the_old_one_and_not_in_its_place(shop: Shop) -> None:
    old = SHOP[SHOP.index("@orders.event") : SHOP.index('@billing.on(OrderPlaced, reads=["order_id"')]
    new = old.replace("placed.v1", "placed.v2").replace("OrderPlaced", "OrderPlacedV2").replace(*RENAMED)
    shop.change(old, old + new)
    shop.freeze()
    alone = shop.check()
    assert alone.returncode == 1
    assert "v2 is new, and v1 is not published beside it: its readers would hear nothing." in alone.stdout
    shop.change(new, new + DOWNCAST)
    shop.freeze()
    beside = shop.check()
    assert beside.returncode == 0, beside.stdout
    assert "v2 is new, with v1 published beside it." in beside.stdout
    (shop.folder / "shop.py").write_text(SHOP.replace("placed.v1", "placed.v2").replace(*RENAMED))
    shop.freeze("--prune")
    instead = shop.check()
    assert instead.returncode == 1
    assert "v2 takes the place of v1, which its consumers still read." in instead.stdout


def test_on_the_main_branch_the_last_tag_counts(shop: Shop) -> None:
    shop.git("tag", "v1.0")
    shop.change(*RENAMED)
    shop.freeze()
    shop.save("straight to main")
    done = shop.check()
    assert done.returncode == 1
    assert "against the last tag, v1.0" in done.stdout


def test_without_a_tag_the_last_commit_counts(shop: Shop) -> None:
    shop.change(*RENAMED)
    shop.freeze()
    done = shop.check()
    assert done.returncode == 1
    assert "against the last commit (" in done.stdout


def test_what_was_added_to_main_meanwhile_is_not_taken_for_removed(shop: Shop) -> None:
    shop.git("checkout", "--quiet", "-b", "vouchers")
    shop.change(*ADDED)
    shop.freeze()
    shop.save("vouchers")
    shop.git("checkout", "--quiet", "main")
    shop.change('"order.placed.v1", key="order_id")', '"order.placed.v1", key="order_id", retention="cold")')
    shop.freeze()
    shop.save("kept cold")
    shop.git("checkout", "--quiet", "vouchers")
    assert "retention" not in shop.check().stdout
    assert "retention-shortened" in shop.check("--against", "main").stdout


def test_a_ref_without_schemas_passes_and_says_so(shop: Shop) -> None:
    shop.git("checkout", "--quiet", "--orphan", "bare")
    shop.git("rm", "-r", "--quiet", "--cached", "event-schemas")
    shop.git("commit", "--quiet", "--message", "before the shop")
    done = shop.check("--against", "bare")
    assert done.returncode == 0
    assert "where event-schemas held no schemas yet" in done.stdout


def test_it_works_from_a_folder_below_the_top(shop: Shop) -> None:
    inner = shop.folder / "services" / "shop"
    inner.mkdir(parents=True)
    for name in ("shop.py", "event-schemas"):
        shutil.move(shop.folder / name, inner / name)
    shop.save("into a folder")
    shop.folder = inner
    shop.change(*RENAMED)
    shop.freeze()
    done = shop.check("--format", "github")
    assert done.returncode == 1
    assert f"::error file=services/shop/{SCHEMA},line=" in done.stdout


def test_files_outside_of_the_frozen_folder_do_not_count(shop: Shop) -> None:
    stranger = shop.folder / "web" / "page" / "opened" / "v1.json"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("{}")
    shop.save("a file that looks like a schema")
    stranger.unlink()
    done = shop.check()
    assert done.returncode == 0, done.stdout
    assert "no findings" in done.stdout


@pytest.mark.parametrize("kind", ["folder", "tar.gz", "zip"])
def test_a_bundle_of_the_last_release_needs_no_git(shop: Shop, tmp_path: Path, kind: str) -> None:
    bundle = tmp_path / f"release.{kind}"
    frozen = shop.folder / "event-schemas"
    if kind == "folder":
        shutil.copytree(frozen, bundle)
    elif kind == "zip":
        with zipfile.ZipFile(bundle, "w") as archive:
            for path in frozen.rglob("*.*"):
                archive.write(path, path.relative_to(frozen))
    else:
        with tarfile.open(bundle, "w:gz") as tar:
            tar.add(frozen, "./release/event-schemas")
    shop.change(*RENAMED)
    shop.freeze()
    shutil.rmtree(shop.folder / ".git")
    done = shop.check("--against", str(bundle))
    assert done.returncode == 1, done.stderr
    assert f"1 changed, against {bundle}" in done.stdout


def test_an_archive_that_is_none_or_holds_nothing_is_refused(shop: Shop, tmp_path: Path) -> None:
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(b"\x1f\x8bnonsense")
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("README.md", "nothing")
    for bundle, said in (
        (torn, "torn.tar.gz"),
        (empty, "holds no frozen schemas"),
        (tmp_path / "no.zip", "No such file"),
    ):
        done = shop.check("--against", str(bundle))
        assert done.returncode == 2
        assert said in done.stderr


def test_a_folder_that_is_called_like_a_branch_is_not_compared_by_mistake(shop: Shop) -> None:
    (shop.folder / "main").mkdir()
    done = shop.check("--against", "main")
    assert done.returncode == 2
    assert "if you mean the branch, write refs/heads/main" in done.stderr
    assert shop.check("--against", "refs/heads/main").returncode == 0


def test_an_unknown_ref_is_refused_with_a_suggestion(shop: Shop) -> None:
    shop.git("tag", "v1.0")
    done = shop.check("--against", "v1.1")
    assert done.returncode == 2
    assert "git knows no 'v1.1'" in done.stderr
    assert "Did you mean 'v1.0'?" in done.stderr
    assert shop.check("--against=--output=owned").returncode == 2
    assert not (shop.folder / "owned").exists()


def test_a_shallow_clone_is_told_to_fetch_its_history(shop: Shop, tmp_path: Path) -> None:
    shop.git("checkout", "--quiet", "-b", "vouchers")
    shop.change(*ADDED)
    shop.freeze()
    shop.save("vouchers")
    shop.git("clone", "--quiet", "--depth=1", "--branch=vouchers", f"file://{shop.folder}", str(tmp_path / "shallow"))
    shop.folder = tmp_path / "shallow"
    for options in ((), ("--against", "main")):
        done = shop.check(*options)
        assert done.returncode == 2
        assert "fetch-depth: 0" in done.stderr


def test_without_git_or_a_repository_a_bundle_is_asked_for(shop: Shop, tmp_path: Path) -> None:
    posthouse = shutil.which("posthouse", path=shop.env["PATH"])
    assert posthouse is not None
    shop.env["PATH"] = str(tmp_path)
    gone = shop.run(posthouse, "schema", "check")
    assert gone.returncode == 2
    assert "git is not installed here" in gone.stderr
    assert "--against last-release.tar.gz" in gone.stderr
    shop.env["PATH"] = os.environ["PATH"]
    shutil.rmtree(shop.folder / ".git")
    nowhere = shop.run(posthouse, "schema", "check")
    assert nowhere.returncode == 2
    assert "git finds no repository in" in nowhere.stderr


def test_leave_is_recorded_with_the_change_and_holds_for_that_change_alone(shop: Shop) -> None:
    shop.git("checkout", "--quiet", "-b", "nicer-names")
    shop.change(*RENAMED)
    shop.freeze()
    refused = shop.check("--bypass", "please", "--reason", "pay day")
    assert refused.returncode == 2
    assert "needs the id of an incident, as in INC-1234, not 'please'" in refused.stderr
    given = shop.check("--bypass", "INC-1234", "--reason", "pay day")
    assert given.returncode == 0, given.stderr
    (record,) = json.loads((shop.folder / "event-schemas" / "bypasses.json").read_text())["bypasses"]
    assert (record["incident"], record["reason"], record["by"]) == ("INC-1234", "pay day", "ann@example.com")
    assert sorted(one["rule"] for one in record["findings"]) == ["field-removed", "required-added"]
    shop.save("nicer names, by leave")
    later = shop.run("sh", "ci.sh")
    assert later.returncode == 0
    assert "bypassed  INC-1234 by ann@example.com on 20" in later.stdout
    assert "this change may pass (ADDITIVE): 2 bypassed" in later.stdout
    shop.change('    note: str = ""\n', "")
    shop.change('reads=["note"]', 'reads=["order_id"]')
    shop.freeze()
    assert shop.check().returncode == 1, "another change of the same file"


def test_nothing_is_recorded_where_nothing_needs_leave(shop: Shop) -> None:
    assert shop.check("--bypass", "INC-1", "--reason", "to be sure").returncode == 0
    assert not (shop.folder / "event-schemas" / "bypasses.json").exists()


def test_the_workflow_that_is_ready_to_be_copied_runs_as_it_stands(shop: Shop) -> None:
    workflow = (ROOT / "docs" / "examples" / "ci" / "github-workflow.yml").read_text()
    commands = re.findall(r"^ +run: (posthouse .*)$", workflow, re.MULTILINE)
    assert len(commands) == 4
    assert "fetch-depth: 0" in workflow
    shop.env["BASE"] = shop.git("rev-parse", "main").strip()
    shop.git("checkout", "--quiet", "-b", "vouchers")
    shop.change(*ADDED)
    shop.freeze()
    for command in commands:
        done = shop.run("sh", "-c", command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    log = json.loads((shop.folder / "event-schemas.sarif").read_text())
    assert log["runs"][0]["results"] == []


def test_the_hook_for_pre_commit_names_a_command_that_runs(shop: Shop) -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    (entry,) = re.findall(r"^  entry: (.*)$", hook, re.MULTILINE)
    assert "pass_filenames: false" in hook
    (pattern,) = re.findall(r"^  files: (.*)$", hook, re.MULTILINE)
    assert re.search(pattern, SCHEMA)
    assert shop.run("sh", "-c", entry).returncode == 0
    shop.change(*RENAMED)
    shop.freeze()
    assert shop.run("sh", "-c", entry).returncode == 1


def many(number: int, *, voucher: bool) -> Service:
    service = Service("many", namespace="shop")
    for index in range(number):

        class Happened(Payload):
            order_id: str
            total_cents: int
            tags: list[str]

        class HappenedWithVoucher(Happened):
            voucher: str = ""

        service.event(f"thing{index}.changed.v1", key="order_id")(HappenedWithVoucher if voucher else Happened)
    return service


def processor_seconds() -> float:
    """What ended child processes have used: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_500_schemas_that_all_changed_are_checked_within_two_seconds(shop: Shop) -> None:
    folder = shop.folder / "event-schemas"
    shutil.rmtree(folder)
    write_folder(folder, freeze(catalogue_of([many(500, voucher=False)]), Bundle()).files)
    shop.save("a large house")
    write_folder(folder, freeze(catalogue_of([many(500, voucher=True)]), read_folder(folder)).files)
    spent = []
    for _ in range(3):
        begun = processor_seconds()
        done = shop.check()
        spent.append(processor_seconds() - begun)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "500 schemas, 500 changed" in done.stdout
    assert min(spent) < 2.0, spent
