"""Alike failures have one fingerprint, whatever the event, the line and the machine."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from posthouse.receiving.fingerprint import LONGEST, fingerprint, reason_word


def charge(amount: int) -> None:
    if amount < 0:
        raise ValueError(f"{amount} is negative")
    raise ValueError("another line, another word")


def ship() -> None:
    raise ValueError("nowhere to go")


class Desk:
    def read(self, text: str) -> object:
        return json.loads(text)


def caught(function: object, *arguments: object) -> Exception:
    assert callable(function)
    with pytest.raises((ValueError, TypeError, OSError)) as caught:
        function(*arguments)
    assert caught.value.__traceback__ is not None
    return caught.value.with_traceback(caught.value.__traceback__.tb_next)  # without the frame of this function


def test_words_and_lines_make_no_difference() -> None:
    assert fingerprint(caught(charge, -1)) == fingerprint(caught(charge, 1))
    assert fingerprint(caught(charge, 1)).startswith("ValueError in ")
    assert fingerprint(caught(charge, 1)).endswith("receiving/test_fingerprint.py:charge")


def test_another_place_or_type_makes_another_one() -> None:
    assert len({fingerprint(caught(charge, 1)), fingerprint(caught(ship)), fingerprint(caught(charge, "x"))}) == 3


def test_the_place_is_the_applications_and_not_a_librarys() -> None:
    assert fingerprint(caught(Desk().read, "{")).endswith("test_fingerprint.py:Desk.read")


def test_no_folder_of_the_machine_is_in_it() -> None:
    assert str(Path(__file__).parents[2]) not in fingerprint(caught(ship))


def test_an_installed_application_is_the_application_too(tmp_path: Path) -> None:
    handler = _module(tmp_path / "site-packages" / "shop" / "handlers.py", "shop.handlers", "def run(f): f()")
    library = _module(tmp_path / "site-packages" / "lib" / "core.py", "lib.core", "def fail(): raise OSError")
    error = caught(handler.run, library.fail)
    assert fingerprint(error) == "OSError in shop/handlers.py:run"


def test_an_error_that_was_never_raised_has_its_type() -> None:
    assert fingerprint(KeyError("x")) == "KeyError"


def test_it_is_never_long() -> None:
    assert len(fingerprint(type("E" * 500, (Exception,), {})())) == LONGEST


@pytest.mark.parametrize(
    ("reason", "read", "word"),
    [
        ("fork: its number or its id belongs to another event", True, "fork"),
        ("unreadable: no id", False, "unreadable"),
        ("its signature is not good", False, "refused"),
        ("an operator said so", True, "set aside"),
    ],
)
def test_a_reason_has_a_word(reason: str, read: bool, word: str) -> None:
    assert reason_word(reason, read=read) == word


def _module(path: Path, name: str, text: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(text, str(path), "exec"), module.__dict__)
    assert name not in sys.modules
    return module
