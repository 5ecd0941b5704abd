"""Posthouse: the event backbone for Python services."""
