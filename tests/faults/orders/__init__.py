"""Worlds in which sagas are played in every order: what their partners may do, and what must be true in the end."""
