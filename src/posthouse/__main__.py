"""`python -m posthouse` is `posthouse`."""

from posthouse.cli import main

main()
