"""What an adapter still owes to the conformance suite. A line is taken out together with its mend; an empty table is the end of
this file."""

import pytest

OWED = {
    (
        "TestKafka",
        "test_acknowledgements_end_though_nobody_reads_them",
    ): "an ack waits longer than its deadline on a dead link",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        cls = getattr(item, "cls", None)
        name = getattr(item, "originalname", item.name)
        reason = OWED.get((cls.__name__, name)) if cls is not None else None
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
