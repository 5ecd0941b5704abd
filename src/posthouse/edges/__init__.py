"""Edges: where other people's protocols meet a service."""
