"""Oracles: other people's implementations, which decide what is right where ours must agree with them."""
