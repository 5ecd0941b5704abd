"""`posthouse jobs`: begun, shown, decided about and run without a console."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.trust.rights import Asked, signed_in
from tests.unit.cli.conftest import Project

TARGET = "shop:orders"


def begun(project: Project, *more: str) -> str:
    asked = (
        "--which",
        "state=dead",
        "--which",
        "rate=1000",
        "--by",
        "ada (console)",
        "--why",
        "ticket 7",
        "--yes",
        *more,
    )
    answer: Any = project.json("jobs", "start", TARGET, "held.skip.all", *asked)
    id: str = answer["job"]
    return id


def shown(project: Project, id: str) -> dict[str, Any]:
    found: Any = project.json("jobs", "show", TARGET, id)
    return dict(found)


def test_a_job_is_begun_and_nobody_has_run_it_until_somebody_does(poisoned: Project) -> None:
    id = begun(poisoned)
    job = shown(poisoned, id)
    assert (job["state"], job["total"], job["done"], job["by"]) == ("running", 1, 0, "ada")
    assert job["says"] == "Waits for a console to take it up."
    assert poisoned.run("jobs", "run", TARGET).exit_code == 0
    job = shown(poisoned, id)
    assert (job["state"], job["done"], job["refused"]) == ("done", 1, 0)
    left: Any = poisoned.json("held", "list", TARGET)
    assert "dead" not in [event["state"] for event in left]
    noted: Any = poisoned.json("actions", TARGET, "--verb", "held skip")
    assert [(one["by"], one["why"]) for one in noted] == [("ada", f"ticket 7 [job {id}]")]
    assert "no job waits to be run" in poisoned.run("jobs", "run", TARGET).stdout


def test_what_will_happen_is_said_before_anybody_is_asked(poisoned: Project) -> None:
    asked = ("jobs", "start", TARGET, "held.skip.all", "--why", "ticket 7")
    result = poisoned.run(*asked, input="n\n")
    assert "1 held event of orders are given up" in result.output
    assert poisoned.json("jobs", "list", TARGET) == []
    result = poisoned.run(*asked, "--yes")
    assert "posthouse jobs run shop:orders" in result.output
    jobs: Any = poisoned.json("jobs", "list", TARGET)
    assert "held.skip.all" in poisoned.run("jobs", "list", TARGET).stdout
    assert [job["act"] for job in jobs] == ["held.skip.all"]


def test_a_paused_job_is_not_run_and_a_cancelled_one_never_is(poisoned: Project) -> None:
    id = begun(poisoned)
    assert poisoned.run("jobs", "pause", TARGET, id).exit_code == 0
    assert "no job waits" in poisoned.run("jobs", "run", TARGET).stdout
    assert shown(poisoned, id)["state"] == "paused"
    assert poisoned.run("jobs", "resume", TARGET, id).exit_code == 0
    assert shown(poisoned, id)["state"] == "running"
    assert poisoned.run("jobs", "cancel", TARGET, id, "--by", "ada").exit_code == 0
    assert poisoned.run("jobs", "run", TARGET).exit_code == 0
    job = shown(poisoned, id)
    assert (job["state"], job["done"]) == ("cancelled", 0)
    late = poisoned.run("jobs", "resume", TARGET, id)
    assert late.exit_code == 2
    assert "The job has ended: it is cancelled." in late.output


def test_what_is_misspelled_or_not_there_is_refused_with_what_to_say(poisoned: Project) -> None:
    why = ("--why", "ticket 7", "--yes")
    for arguments, words in (
        (("start", TARGET, "held.skp.all", *why), "Did you mean 'held.skip.all'"),
        (("start", TARGET, "held.skip", *why), "not for many things"),
        (("start", TARGET, "held.skip.all", "--yes"), "say --why"),
        (("start", TARGET, "held.skip.all", "--which", "sate=dead", *why), "Did you mean 'state'"),
        (("start", TARGET, "held.skip.all", "--which", "state", *why), "NAME=VALUE"),
        (("start", TARGET, "held.skip.all", "--which", "rate=fast", *why), "is no number"),
        (("start", TARGET, "held.skip.all", "--which", "key=nobody", *why), "Nothing fits."),
        (("show", TARGET, "nothing"), "has no job nothing"),
    ):
        result = poisoned.run("jobs", *arguments)
        assert result.exit_code == 2, arguments
        assert words in result.output, result.output


def test_a_job_of_the_command_line_is_of_nobody_who_signed_in(
    poisoned: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = poisoned.write("rights.toml", "grants = true")
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(rights))

    async def granted(service: Service) -> None:
        desk = app_of(service).grants
        with signed_in(True):
            grant = await desk.request(Asked(service="orders"), by="ada", why="ticket 7")
            await desk.approve(grant.id, by="grace")

    poisoned.with_service(granted)
    asked = ("jobs", "start", TARGET, "held.retry.all", "--why", "ticket 7", "--which", "rate=1000", "--yes", "--by")
    assert poisoned.run(*asked, "ada (console) (console)").exit_code == 0
    jobs: Any = poisoned.json("jobs", "list", TARGET)
    assert [job["by"] for job in jobs] == ["ada"]
    rights.write_text("grants = true\nsigned_in = true")
    assert poisoned.run("jobs", "run", TARGET).exit_code == 0
    job = shown(poisoned, jobs[0]["id"])
    assert (job["state"], job["done"]) == ("paused", 0)
    assert "signed in at a console" in job["note"]
    monkeypatch.setenv("POSTHOUSE_OPERATOR", "ada (console)")
    for by in ("ada", "ada (console) (console)", ""):
        assert "signed in at a console" in poisoned.run(*asked, by).output


@pytest.mark.parametrize("verb", ["list", "show", "start", "run"])
def test_without_the_extra_each_verb_says_what_to_install(
    poisoned: Project, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    id = begun(poisoned)
    for name in [name for name in sys.modules if name.startswith("posthouse.console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)  # as if it were not there
    for name in [name for name in sys.modules if name.startswith("starlette.")]:
        monkeypatch.delitem(sys.modules, name)
    more = {"show": (id,), "start": ("held.skip.all", "--why", "ticket 7", "--yes")}.get(verb, ())
    result = poisoned.run("jobs", verb, TARGET, *more)
    assert result.exit_code == 2
    assert "pip install 'posthouse[console]'" in result.output
