"""An audit log in a bucket of S3, through moto: the same files, each put once."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.clock import new_id
from posthouse.errors import AuditUnavailable
from posthouse.history.audit.log import AuditLog, seal
from posthouse.history.audit.place import Place, open_place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.verify import verify
from tests.kit.audit import KEY, SIGNER, START, events
from tests.kit.servers.s3 import BUCKET


@pytest.fixture
def bucket(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a prefix that is empty."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return f"s3://{BUCKET}/{new_id()}?region=us-east-1&endpoint=http://127.0.0.1:{s3_port}&allow_http=true"


@pytest.fixture
def place(bucket: str) -> Place:
    return open_place(bucket)


def test_a_file_is_put_once_and_replaced_only_where_it_is_what_was_seen(place: Place) -> None:
    assert place.get("a/1") is None
    assert list(place.list("a/")) == []
    assert place.put("a/1", b"x")
    assert not place.put("a/1", b"y")
    assert place.get("a/1") == b"x"
    assert place.put("a/2/b", b"")
    assert place.put("b/1", b"")
    assert list(place.list("a/")) == ["a/1", "a/2/b"]
    assert list(place.list("a/", "a/1")) == ["a/2/b"]
    assert not place.replace("a/1", b"z", b"y")
    assert place.replace("a/1", b"z", b"x")
    assert place.get("a/1") == b"z"
    assert place.replace("a/3", b"z", None)
    assert not place.replace("a/3", b"y", None)


def test_a_log_lives_in_a_bucket_with_a_folder_as_its_second_place(place: Place, tmp_path: Path) -> None:
    second = Folder(tmp_path)
    for start, end in ((0, 300), (300, 520)):
        log = AuditLog(place)
        log.append(events(start, end))
        assert log.append(events(start, end)) == 0
        seal(place, second, SIGNER, START + start)
    report = verify(place, [KEY], second)
    assert (report.findings, report.signed, report.checkpoints) == ([], 520, 2)


def test_a_second_place_in_a_bucket_tells_what_was_done_to_a_folder(place: Place, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    AuditLog(folder).append(events(0, 300))
    seal(folder, place, SIGNER, START)
    (tmp_path / "events/0000000000000000").unlink()
    [finding] = verify(folder, [KEY], place).findings
    assert finding.words == "300 events at positions 0 to 299 were removed: e0 to e299"


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    options = bucket.partition("?")[2]
    with pytest.raises(AuditUnavailable, match="the audit log in s3://nowhere/x: "):
        open_place(f"s3://nowhere/x?{options}").put("a", b"")
