"""Scanning: what in a file would harm whoever opens it. By known signatures; a pure function."""

from __future__ import annotations

SIGNATURES = {
    "eicar-test": b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*",
    "windows-program": b"MZ\x90\x00",
    "elf-program": b"\x7fELF",
}
"""Programs have no place among pictures and documents."""


def found_in(content: bytes) -> str:
    """The name of the first signature in it; empty when there is none."""
    return next((name for name, signature in SIGNATURES.items() if signature in content), "")
