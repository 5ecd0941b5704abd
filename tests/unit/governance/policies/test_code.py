"""Source files are read without running them."""

from __future__ import annotations

import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.policies.code import Publish, Source, read


def source(text: str, module: str = "shop.orders", file: str = "shop/orders.py") -> Source:
    return Source(module=module, file=file, text=text)


def publishes(body: str) -> list[Publish]:
    return list(read([source(body)]).publishes)


def test_imports_are_seen_wherever_they_stand_with_their_full_names() -> None:
    text = "import a.b\nfrom c.d import e as f\ndef g():\n    from . import h\n    from ..i import j\n"
    found = read([source(text)]).imports
    assert [(one.name, one.place.line) for one in found] == [
        ("a.b", 1), ("c.d.e", 2), ("shop.h", 4), ("i.j", 5),
    ]  # fmt: skip


def test_a_package_counts_its_dots_from_itself() -> None:
    [found] = read([source("from .x import y", module="shop", file="shop/__init__.py")]).imports
    assert found.name == "shop.x.y"


def test_an_event_is_published_by_its_class_or_by_a_name_that_was_given_it() -> None:
    direct, named = publishes(
        "from shop.facts import Placed as P\n"
        "async def place(tx):\n    tx.publish(P(1))\n    paid = Paid(2)\n    tx.publish(paid, idempotency_key=k)\n"
    )
    assert (direct.event, direct.function, direct.key) == ("shop.facts.Placed", "shop.orders.place", "missing")
    assert (named.event, named.key, named.prefix) == ("shop.orders.Paid", "given", None)


def test_a_name_of_another_function_is_not_mistaken_for_this_ones() -> None:
    assert not publishes("def a(tx):\n    x = Paid(2)\n\ndef b(tx, x):\n    tx.publish(y)\n")


def test_the_outbox_takes_events_after_the_session() -> None:
    one, two = publishes("async def f(s):\n    await orders.outbox.add(s, A(), B(), tenant='platform')\n")
    assert (one.event, two.event, one.platform) == ("shop.orders.A", "shop.orders.B", True)


def test_a_set_that_something_is_added_to_is_no_outbox() -> None:
    assert not publishes("def f(s):\n    s.add(A(), B())\n")


@pytest.mark.parametrize(
    ("opened", "platform"),
    [
        ('orders.transaction("platform")', True),
        ('orders.transaction(tenant="platform")', True),
        ("orders.transaction(PLATFORM)", True),
        ("orders.transaction(envelope.PLATFORM)", True),
        ('orders.transaction("t1")', False),
        ("orders.transaction(tenant)", False),
        ("orders.transaction()", False),
        ('other("platform")', False),
        ('orders.connect("platform")', False),
    ],
)
def test_the_tenant_of_a_transaction_is_read_where_it_is_written(opened: str, platform: bool) -> None:
    [found] = publishes(f"async def f():\n    async with {opened} as tx:\n        tx.publish(A())\n")
    assert found.platform is platform


def test_after_the_block_of_the_platform_it_is_over() -> None:
    text = 'def f():\n    with s.transaction("platform") as tx:\n        pass\n    tx.publish(A())\n'
    assert [one.platform for one in publishes(text)] == [False]


@pytest.mark.parametrize(
    ("key", "given", "prefix"),
    [
        ("str(uuid4())", "random", None),
        ('f"order:{uuid.uuid4()}"', "random", "order:"),
        ("datetime.now().isoformat()", "random", None),
        ('f"order:{order_id}"', "given", "order:"),
        ('f"{order_id}:x"', "given", ""),
        ('"x"', "given", "x"),
        ("None", "missing", None),
        ('""', "missing", ""),
        ("request.key", "given", None),
    ],
)
def test_an_idempotency_key_is_given_made_up_or_missing(key: str, given: str, prefix: str | None) -> None:
    [found] = publishes(f"def f(tx):\n    tx.publish(A(), idempotency_key={key})\n")
    assert (found.key, found.prefix) == (given, prefix)


def test_calls_have_the_names_that_imports_give_them() -> None:
    text = "import urllib.request as r\nimport http.client\ndef f():\n    r.urlopen(x)\n    http.client.HTTPConnection(y)\n    z().w()\n"
    assert {one.name for one in read([source(text)]).calls} == {
        "urllib.request.urlopen", "http.client.HTTPConnection", "shop.orders.z", "",
    }  # fmt: skip


def test_a_declaration_ends_where_its_body_begins() -> None:
    text = "@a\n@b(\n    1\n)\nclass C(\n    D\n):\n    x: int\n\n    def m(self):\n        def inner(): ...\n"
    found = read([source(text)]).declarations
    assert (found["shop.orders.C"].line, found["shop.orders.C"].until) == (1, 7)
    assert "shop.orders.C.m" in found
    assert "shop.orders.C.m.<locals>.inner" in found


def test_allowances_are_comments_and_not_texts() -> None:
    text = 'x = "# posthouse: allow a: b"\ny = 1  # posthouse: allow missing-key: because: of it \n#posthouse:allow c\n'
    found = read([source(text)]).comments
    assert [(one.rule, one.reason, one.place.line) for one in found] == [
        ("missing-key", "because: of it", 2),
        ("c", "", 3),
    ]


def test_every_file_that_is_no_python_is_named_with_its_line() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read([source("x = 1\ndef f(:\n"), source("y = \0", file="other.py"), source("z = 1")])
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "shop/orders.py, line 2",
        "other.py, line 1",
    ]
