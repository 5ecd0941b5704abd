"""Edges: where other people's protocols meet a service. Push needs `pip install 'posthouse[push]'`."""

from posthouse.edges.push import PushEndpoint, push_endpoint

__all__ = ["PushEndpoint", "push_endpoint"]
