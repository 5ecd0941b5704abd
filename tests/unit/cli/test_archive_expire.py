"""`posthouse archive expire` goes by the classes, where somebody has said what they mean."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import SHOP, Project

ARCHIVED = """
from posthouse import App, Settings
from posthouse.contracts.retention import RetentionClasses

app = App(orders, archive="file://FOLDER/archive", settings=Settings(RETENTION))
"""


@pytest.mark.parametrize(("retention", "code"), [("retention=RetentionClasses()", 0), ("", 2)])
def test_without_ages_the_classes_are_meant_where_they_are_declared(
    project: Project, retention: str, code: int
) -> None:
    text = ARCHIVED.replace("FOLDER", str(project.folder)).replace("RETENTION", retention)
    project.write("shop.py", SHOP + text)
    project.place(("a", 1))
    result = project.run("archive", "expire", "shop:app", "--dry-run")
    assert result.exit_code == code, result.output
    assert ("RetentionClasses()" in result.stderr) is (code == 2)
