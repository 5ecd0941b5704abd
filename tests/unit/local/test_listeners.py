"""What we listen on: which files it takes, and whom it lets in."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from posthouse.errors import ConfigurationError
from posthouse.local.listeners import listener_context
from posthouse.local.tls import Files
from tests.kit.servers.tls import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.give("mine")
    authority.give("other")
    return authority


def files(authority: Authority, **named: str) -> Files:
    return Files(**{word: str(authority.folder / name) for word, name in named.items()})


def test_without_files_it_speaks_plain_text() -> None:
    assert listener_context(Files()) is None


def test_it_asks_for_certificates_where_an_authority_is_named(authority: Authority) -> None:
    for given, mode in (
        (files(authority, cert="mine.pem", key="mine.key"), ssl.CERT_NONE),
        (files(authority, cert="mine.pem", key="mine.key", ca="ca.pem"), ssl.CERT_REQUIRED),
    ):
        context = listener_context(given)
        assert context is not None
        assert context.verify_mode == mode
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_key_and_certificate_may_stand_in_one_file(authority: Authority) -> None:
    both = authority.folder / "both.pem"
    both.write_bytes((authority.folder / "mine.key").read_bytes() + (authority.folder / "mine.pem").read_bytes())
    assert listener_context(Files(cert=str(both))) is not None


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"ca": "ca.pem"}, "--tls-client-ca needs --tls-cert"),
        ({"key": "mine.key"}, "--tls-key needs --tls-cert"),
        ({"cert": "mine.pem"}, "holds no private key in PEM; name it with --tls-key"),
        ({"cert": "mine.pem", "key": "other.key"}, "of different pairs"),
        ({"cert": "none.pem", "key": "mine.key"}, "none.pem cannot be used: there is no such file"),
        ({"cert": "mine.pem", "key": "mine.key", "ca": "mine.key"}, "--tls-client-ca="),
    ],
)
def test_files_that_cannot_be_used_are_named(named: dict[str, str], says: str, authority: Authority) -> None:
    with pytest.raises(ConfigurationError) as caught:
        listener_context(files(authority, **named))
    assert says in str(caught.value)


def test_everything_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        listener_context(Files(ca=str(tmp_path / "a"), cert=str(tmp_path / "b"), key=str(tmp_path / "c")))
    assert len(caught.value.problems) == 3
