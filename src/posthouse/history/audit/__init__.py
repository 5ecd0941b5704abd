"""Audit: a Merkle log of events as files, so that nobody can change, take out, slip in or reorder one unseen."""
