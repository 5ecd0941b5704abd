"""What a project says about the rules is checked, all at once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.policies import RULES, Allowance, Severity, settings_of

PAGE = Path(__file__).parents[4] / "docs" / "check.md"


def problems(table: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        settings_of(table, RULES)
    return list(caught.value.problems)


def test_nothing_said_is_fine() -> None:
    settings = settings_of({}, RULES)
    assert settings.payload_limit == 262_144
    assert settings.redelivery == 604_800


def test_the_settings_on_the_page_are_all_there_are_and_can_be_read() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    table = tomllib.loads(text)["tool"]["posthouse"]["check"]
    settings = settings_of(table, RULES)
    assert set(table) == set(settings.__struct_fields__)
    assert settings.severity == {"missing-key": Severity.ERROR}
    assert settings.cross_tenant == {"shop.analytics.*": ("warehouse",)}
    assert settings.allow[0].rule == "payload-grows"


def test_every_problem_is_told_at_once_with_a_suggestion() -> None:
    assert problems(
        {
            "of": [],
            "off": ["mising-key"],
            "severity": {"bad-subjects": "info"},
            "allow": [
                {"rule": "orm-shap", "where": "*", "reason": "x"},
                {"rule": "orm-shape", "where": "a", "reason": " "},
            ],
        }
    ) == [
        "[tool.posthouse.check] has no setting 'of'. Did you mean 'off'?",
        "[tool.posthouse.check]: off names 'mising-key', and there is no such rule. Did you mean 'missing-key'?",
        "[tool.posthouse.check]: severity names 'bad-subjects', and there is no such rule. Did you mean 'bad-subject'?",
        "[tool.posthouse.check]: allow names 'orm-shap', and there is no such rule. Did you mean 'orm-shape'?",
        "[tool.posthouse.check]: allow for orm-shape at 'a' gives no reason; say why it is right there",
    ]


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"severity": {"missing-key": "fatal"}}, "$.severity[...]"),
        ({"off": "missing-key"}, "$.off"),
        ({"allow": [{"rule": "missing-key", "where": "x"}]}, "$.allow[0]"),
        ({"allow": [{"rule": "missing-key", "where": "x", "reason": "y", "until": "z"}]}, "$.allow[0]"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_place(table: dict[str, object], place: str) -> None:
    [problem] = problems(table)
    assert place in problem


def test_an_allowance_covers_its_rule_at_its_places() -> None:
    allowance = Allowance(rule="missing-key", where="shop.*.v1", reason="x")
    assert allowance.covers("missing-key", "shop.orders.order.placed.v1")
    assert not allowance.covers("missing-key", "shop.orders.order.placed.v2")
    assert not allowance.covers("orm-shape", "shop.orders.order.placed.v1")
