"""`python -m tests.misuse` prints docs/mistakes.md."""

from tests.misuse.page import page

print(page(), end="")
