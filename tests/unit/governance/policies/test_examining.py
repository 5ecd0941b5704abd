"""Rules can be off, weigh otherwise, or be excused in one place with a reason."""

from __future__ import annotations

import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.policies import Allowance, Examination, Settings, Severity, examine
from tests.unit.governance.policies.conftest import Gather

VISIT = """
@orders.event("visit.counted.v1")
class VisitCounted(Payload):
    visit_id: str
"""


def rules(examination: Examination) -> set[str]:
    return {finding.rule for finding in examination.findings}


def test_a_finding_says_where_why_and_what_to_do(gather: Gather) -> None:
    [found] = [f for f in examine(gather(VISIT)).findings if f.rule == "missing-key"]
    assert (found.file, found.line, found.where) == ("shop.py", 12, "shop.orders.visit.counted.v1")
    assert found.reason
    assert 'key="visit_id"' in found.fix


def test_a_rule_that_is_off_is_not_asked(gather: Gather) -> None:
    assert "missing-key" not in rules(examine(gather(VISIT, Settings(off=("missing-key",)))))


def test_findings_come_by_weight_and_only_errors_fail(gather: Gather) -> None:
    plain = examine(gather(VISIT))
    assert [f.severity for f in plain.findings] == [Severity.WARNING, Severity.INFO, Severity.INFO]
    assert not plain.fails()
    assert plain.fails(strict=True)
    heavy = examine(gather(VISIT, Settings(severity={"undescribed-event": Severity.ERROR})))
    assert heavy.findings[0].rule == "undescribed-event"
    assert heavy.fails()
    light = examine(gather(VISIT, Settings(severity={"missing-key": Severity.INFO})))
    assert not light.fails(strict=True)


def test_an_allowance_of_the_settings_sets_a_finding_aside_with_its_reason(gather: Gather) -> None:
    allow = (Allowance(rule="missing-key", where="shop.orders.visit.*", reason="each stands for itself"),)
    examination = examine(gather(VISIT, Settings(allow=allow)))
    assert "missing-key" not in rules(examination)
    [allowed] = examination.allowed
    assert (allowed.because, allowed.finding.rule) == ("each stands for itself", "missing-key")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n@orders", "\n# posthouse: allow missing-key: why not\n@orders"),
        ('v1")', 'v1")  # posthouse: allow missing-key: why not'),
        ("(Payload):", "(Payload):  # posthouse: allow missing-key: why not"),
    ],
)
def test_a_comment_on_the_declaration_sets_a_finding_aside(gather: Gather, before: str, after: str) -> None:
    examination = examine(gather(VISIT.replace(before, after)))
    assert [allowed.because for allowed in examination.allowed] == ["why not"]
    assert "missing-key" not in rules(examination)
    assert "undescribed-event" in rules(examination)


def test_a_comment_elsewhere_sets_nothing_aside(gather: Gather) -> None:
    for text in (
        f"# posthouse: allow missing-key: far above\n\n{VISIT}",
        f"{VISIT}    # posthouse: allow missing-key: inside\n",
    ):
        assert "missing-key" in rules(examine(gather(text)))


def test_comments_that_name_no_rule_or_no_reason_are_refused(gather: Gather) -> None:
    with pytest.raises(ConfigurationError) as caught:
        examine(gather("# posthouse: allow mising-key: x\n# posthouse: allow missing-key\n" + VISIT))
    assert list(caught.value.problems) == [
        "shop.py, line 11: there is no rule 'mising-key' to allow. Did you mean 'missing-key'?",
        "shop.py, line 12: say why, as in `# posthouse: allow missing-key: <the reason>`",
    ]
