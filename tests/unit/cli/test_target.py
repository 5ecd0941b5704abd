"""A target is `module:service`; whatever is wrong with it is said in one sentence."""

from __future__ import annotations

import pytest

from posthouse.app import app_of, apps_of
from posthouse.cli.target import load, load_all, store_of
from posthouse.errors import ConfigurationError
from tests.unit.cli.conftest import Project

TWO = "from posthouse import Service\norders = Service('orders')\nbilling = Service('billing')\nanswer = 42\n"


def test_a_service_is_found_by_module_and_name(project: Project) -> None:
    assert load("shop:orders").name == "orders"


def test_the_module_alone_is_enough_when_it_has_one_service(project: Project) -> None:
    assert load("shop").name == "orders"


def test_two_names_of_one_service_are_still_one_service(project: Project) -> None:
    project.write("again.py", "from posthouse import Service\norders = Service('orders')\napp = orders\n")
    assert load("again").name == "orders"


def test_the_same_service_named_twice_runs_once(project: Project) -> None:
    assert len(load_all(["shop", "shop:orders"])) == 1


APP = """
from posthouse import App, Service

orders, billing, alone = Service("orders"), Service("billing"), Service("alone")
app = App(orders, billing, store="sqlite:///shop.db")
"""


@pytest.mark.parametrize("target", ["together", "together:app"])
def test_an_app_stands_for_all_its_services_and_goes_before_one_alone(project: Project, target: str) -> None:
    project.write("together.py", APP)
    services = load_all([target])
    assert [service.name for service in services] == ["orders", "billing"]
    assert [app.opened.ports.store_url for app in apps_of(services)] == ["sqlite:///shop.db"]


def test_a_service_of_an_app_can_be_named_alone_and_runs_where_its_app_does(project: Project) -> None:
    project.write("together.py", APP)
    assert app_of(load("together:billing")).opened.ports.store_url == "sqlite:///shop.db"
    with pytest.raises(ConfigurationError, match=r"several services \(orders, billing\): name one of them"):
        load("together:app")


def test_an_app_of_several_services_has_one_store_to_upgrade(project: Project) -> None:
    project.write("together.py", APP)
    assert store_of("together") is store_of("together:app") is app_of(load("together:orders")).store


def test_every_problem_of_several_targets_is_told_at_once(project: Project) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_all(["shop:order", "nothing_here", "shop"])
    assert len(caught.value.problems) == 2


def test_two_services_of_one_name_are_refused(project: Project) -> None:
    project.write("more.py", TWO)
    with pytest.raises(ConfigurationError, match="two services are called 'orders'"):
        load_all(["shop", "more:orders"])


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("shop:order", "shop has no 'order'. Did you mean 'orders'?"),
        ("shopp:orders", "Did you mean 'shop'?"),
        ("shop.orders:orders", "no module is called 'shop.orders'"),
        ("shelf.event", "Did you mean 'shelf.events'?"),
        ("shop.py:orders", "Did you mean 'shop:orders'?"),
        ("./shop.py", "Did you mean 'shop'?"),
        ("shop:OrderPlaced", "shop:OrderPlaced is no Service and no App, but type; shop holds shop:orders"),
        ("two", "two holds two:billing, two:orders: name one of them"),
        ("two:answer", "two:answer is no Service and no App, but int"),
        ("empty", "empty holds no Service"),
        ("empty:orders", "empty has no 'orders'. empty holds no Service"),
        ("no target", "write module:service"),
        ("", "write module:service"),
        ("broken", "ZeroDivisionError"),
        ("unmet", "No module named 'not_installed'"),
        ("present", "present.py, line 3"),
    ],
)
def test_a_target_that_is_no_service_says_what_to_write(project: Project, target: str, complaint: str) -> None:
    project.write("two.py", TWO)
    project.write("empty.py", "")
    project.write("broken.py", "1 / 0\n")
    (project.folder / "shelf").mkdir()
    project.write("shelf/__init__.py", "")
    project.write("shelf/events.py", TWO)
    project.write("unmet.py", "import not_installed\n")
    project.write(
        "present.py",
        "from posthouse import Service\nshop = Service('shop')\n@shop.event('order.place.v1')\nclass Order:\n    id: str\n",
    )
    result = project.run("status", target)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""
    assert "importlib" not in result.stderr
