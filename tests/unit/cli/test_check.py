"""`posthouse check` finds anti-patterns in services and in their code."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import SHOP, Project

CLEAN = SHOP.replace('namespace="shop"', 'namespace="shop", owner="checkout"').replace(
    'key="order_id")\nclass OrderPlaced:',
    'key="order_id", retention="cold")\nclass OrderPlaced:\n    """An order."""\n',
)
PAY = """

async def pay(order_id: str) -> None:
    async with orders.transaction("t1") as tx:
        tx.publish(OrderPlaced(order_id=order_id, total_cents=1))
"""


def test_a_clean_service_passes_strictly(project: Project) -> None:
    project.write("shop.py", CLEAN)
    result = project.run("check", "shop", "--strict")
    assert (result.exit_code, result.stdout) == (0, "nothing found\n")


def test_errors_fail_and_say_where_why_and_what_to_do(project: Project) -> None:
    project.write("shop.py", CLEAN + PAY)
    result = project.run("check", "shop")
    line = len((CLEAN + PAY).splitlines())
    assert result.exit_code == 1
    assert "✗ money-without-idempotency-key  Money that is moved without an idempotency key" in result.stdout
    assert f"  shop.py:{line}  shop.pay publishes shop.orders.order.placed.v1, which moves money" in result.stdout
    assert "  why  A request from outside is sent again when its answer is lost" in result.stdout
    assert "  fix  Give a key that follows from the intent" in result.stdout
    assert result.stdout.endswith("1 error\n")


def test_warnings_fail_only_when_strict(project: Project) -> None:
    result = project.run("check", "shop")
    assert result.exit_code == 0
    assert "! unowned-topic" in result.stdout
    assert result.stdout.endswith("2 warnings, 1 info\n")
    assert project.run("check", "shop", "--strict").exit_code == 1


def test_findings_are_one_json_value(project: Project) -> None:
    project.write("shop.py", CLEAN + PAY)
    result = project.run("check", "shop", "--format", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["passes"] is False
    assert document["allowed"] == []
    [found] = document["findings"]
    assert found["rule"] == "money-without-idempotency-key"
    assert (found["severity"], found["file"], found["where"]) == ("error", "shop.py", "shop.orders.order.placed.v1")


def test_findings_are_sarif(project: Project) -> None:
    project.write("shop.py", CLEAN + PAY)
    result = project.run("check", "shop", "--format", "sarif")
    assert result.exit_code == 1
    [run] = json.loads(result.stdout)["runs"]
    [found] = run["results"]
    rule = run["tool"]["driver"]["rules"][found["ruleIndex"]]
    assert rule["id"] == found["ruleId"] == "money-without-idempotency-key"
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "shop.py"


def test_findings_are_annotations_for_github(project: Project) -> None:
    project.write("shop.py", CLEAN + PAY)
    result = project.run("check", "shop", "--format", "github")
    assert result.exit_code == 1
    [line] = result.stdout.splitlines()
    assert line.startswith("::error file=shop.py,line=")
    project.write("shop.py", CLEAN)
    assert project.run("check", "shop", "--format", "github").stdout == ""


def test_the_settings_of_the_project_count_also_from_a_folder_below(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("pyproject.toml", '[tool.posthouse.check]\noff = ["unowned-topic", "short-retention"]\n')
    below = project.folder / "below"
    below.mkdir()
    (below / "shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.chdir(below)
    result = project.run("check", "shop")
    assert result.stdout.endswith("1 info\n")
    assert "  below/shop.py:7  " in result.stdout


def test_allowed_findings_are_counted(project: Project) -> None:
    allow = '[[tool.posthouse.check.allow]]\nrule = "unowned-topic"\nwhere = "*"\nreason = "one team"\n'
    project.write("pyproject.toml", allow)
    result = project.run("check", "shop")
    assert "unowned-topic" not in result.stdout
    assert result.stdout.endswith("1 warning, 1 info, 1 allowed\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.posthouse.check]\noff = ['unowned-topics']", "Did you mean 'unowned-topic'?"),
        ("[tool.posthouse]\ncheck = 3", "tool.posthouse.check must be a table"),
        ("[tool.posthouse", "pyproject.toml cannot be read"),
        ("[tool.posthouse.check]\nsources = ['nowhere']", "sources names 'nowhere', which is not there"),
    ],
)
def test_bad_settings_are_bad_input(project: Project, text: str, said: str) -> None:
    project.write("pyproject.toml", text)
    result = project.run("check", "shop")
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_whole_package_of_a_service_is_read_but_not_its_tests(project: Project) -> None:
    package = project.folder / "hotel"
    for folder in (package, package / "tests", package / "adapters"):
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (package / "desk.py").write_text(CLEAN)
    for name in ("pay.py", "tests/helpers.py", "test_pay.py", "adapters/bank.py"):
        (package / name).write_text("import stripe\n")
    result = project.run("check", "hotel.desk")
    assert result.exit_code == 1
    assert "hotel/pay.py:1  hotel.pay imports stripe" in result.stdout
    assert result.stdout.count("imports stripe") == 1


def test_a_module_that_declares_nothing_is_read_too(project: Project) -> None:
    project.write("quiet.py", "from posthouse import Service\nquiet = Service('quiet')\ndef f():\n    import stripe\n")
    assert "quiet.py:4  quiet imports stripe" in project.run("check", "quiet:quiet").stdout


def test_sources_of_the_settings_are_read_instead(project: Project) -> None:
    project.write("pyproject.toml", '[tool.posthouse.check]\nsources = ["lib", "one.py"]\n')
    (project.folder / "lib").mkdir()
    for hidden in (".tox", "site-packages"):
        (project.folder / "lib" / hidden).mkdir()
        (project.folder / "lib" / hidden / "b.py").write_text("import stripe\n")
    (project.folder / "lib" / "a.py").write_text("import stripe\n")
    project.write("one.py", "import twilio\n")
    project.write("shop.py", CLEAN + PAY)
    found = project.run("check", "shop").stdout
    assert "lib/a.py:1  a imports stripe" in found
    assert "one.py:1  one imports twilio" in found
    assert "shop.pay" not in found
    assert found.count("imports stripe") == 1


def test_a_catalogue_is_checked_without_its_code(project: Project) -> None:
    catalogue = project.run("catalog", "shop", "--json").stdout.replace("order.placed", "order.place")
    project.write("theirs.json", catalogue)
    result = project.run("check", "theirs.json")
    assert result.exit_code == 1
    assert "'place' is not past tense; did you mean 'placed'?" in result.stdout
    assert project.run("check", "theirs.json", "shop").exit_code == 2
    assert project.run("check", "none.json").exit_code == 2
    project.write("bad.json", "[]")
    assert "this is not a catalogue" in project.run("check", "bad.json").stderr


def test_a_rule_is_explained(project: Project) -> None:
    result = project.run("check", "--explain", "missing-key")
    assert result.exit_code == 0
    assert "missing-key  warning: An event about one thing, without a key" in result.stdout
    assert "why" in result.stdout
    wrong = project.run("check", "--explain", "missing-keys")
    assert wrong.exit_code == 2
    assert "Did you mean 'missing-key'?" in wrong.stderr


def test_what_a_service_says_has_no_power_over_the_terminal(project: Project) -> None:
    project.write("shop.py", CLEAN.replace("total_cents: int\n", "total_cents: int\n    secret: str = ''\n"))
    assert "\x1b" not in project.run("check", "shop").stdout


MET = """

from typing import Annotated
from posthouse import Personal

@orders.event("guest.met.v1", key="email", retention="cold")
class GuestMet:
    email: Annotated[str, Personal("contact")]

@orders.event("guest.seen.v1", key="phone", retention="cold")
class GuestSeen:
    phone: str
"""


def test_what_one_rule_is_sure_of_is_told_apart_from_what_it_asks_about(project: Project) -> None:
    project.write("shop.py", CLEAN + MET)
    off = '[tool.posthouse.check]\noff = ["personal-data-unmarked", "event-nobody-reads", "undescribed-event"]\n'
    project.write("pyproject.toml", off)
    result = project.run("check", "shop")
    assert result.exit_code == 1
    assert "✗ personal-data-in-key" in result.stdout
    assert "! personal-data-in-key" in result.stdout
    assert result.stdout.endswith("1 error, 1 warning\n")
    project.write("pyproject.toml", f'{off}severity = {{ personal-data-in-key = "info" }}\n')
    assert project.run("check", "shop").stdout.endswith("\n2 infos\n")


def test_rights_in_a_file_are_compared_with_what_is_declared(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("shop.py", CLEAN)
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(project.write("rights.toml", '[read]\n"shop.order.*" = ["orders"]\n')))
    result = project.run("check", "shop", "--strict")
    assert result.exit_code == 1
    assert "! rights-keep-nothing  Rights that match nothing" in result.stdout
    assert "Rights(read) names shop.order.*, and no topic is called so" in result.stdout
