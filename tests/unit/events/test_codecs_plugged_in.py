"""Wire formats of other distributions: known by their names and content types when installed, and only then imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from posthouse import Service
from posthouse.errors import ConfigurationError, DecodeError
from posthouse.events import BINARY, STRUCTURED, codec_of
from posthouse.events.codecs import Codecs

CODEC = """
from posthouse.events.codecs import StructuredCodec

class Inn(StructuredCodec):
    name = "inn"
    content_type = "application/vnd.inn+json"

CODEC = Inn()
ODD = 7
"""


@pytest.fixture
def codecs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codecs:
    """With a distribution that plugs in a good one, one that cannot be imported, one that is none and one by another name."""
    info = tmp_path / "inn-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inn\nVersion: 1.0\n")
    formats = "inn = inn_codec:CODEC\nbroken = inn_gone:CODEC\nodd = inn_codec:ODD\nout = inn_codec:CODEC\n"
    (info / "entry_points.txt").write_text(f"[posthouse.envelopes]\n{formats}")
    (tmp_path / "inn_codec.py").write_text(CODEC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "inn_codec", raising=False)
    return Codecs(STRUCTURED, BINARY)


def test_one_that_is_plugged_in_is_known_by_its_name(codecs: Codecs) -> None:
    assert codecs["inn"].content_type == "application/vnd.inn+json"
    assert {"structured", "binary", "inn", "melmastoon"} < set(codecs)
    assert len(codecs) == len(set(codecs))
    assert "out-of-house" not in codecs


def test_our_own_are_had_without_looking_for_others(codecs: Codecs) -> None:
    assert codecs["binary"] is BINARY
    assert codecs.announced_by("application/cloudevents+json") is STRUCTURED
    assert "inn_codec" not in sys.modules


def test_one_that_is_plugged_in_is_known_by_its_content_type_though_nobody_named_it(codecs: Codecs) -> None:
    assert codecs.announced_by("Application/vnd.INN+json; charset=utf-8") is codecs["inn"]
    assert codecs.announced_by("application/vnd.inn+json") is codecs["inn"]
    assert codecs.announced_by("text/plain") is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "'broken' of the distribution 'inn' cannot be loaded from inn_gone:CODEC: ModuleNotFoundError"),
        ("odd", "inn_codec:ODD is not a codec whose name is 'odd'"),
        ("out", "inn_codec:CODEC is not a codec whose name is 'out'"),
    ],
)
def test_one_that_cannot_be_used_is_refused_with_the_reason(codecs: Codecs, name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        codecs[name]


def test_a_frame_that_nobody_can_read_says_which_codecs_could_not_be_loaded(
    codecs: Codecs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.events.codecs.CODECS", codecs)
    with pytest.raises(
        DecodeError, match=r"'text/x' is no event.*; 'broken' of the distribution 'inn' cannot be loaded"
    ):
        codec_of({"content-type": "text/x"}, b"")


def test_a_misspelt_format_gets_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"'melmaston'\. Did you mean 'melmastoon'\?"):
        Service("orders", envelope="melmaston")
