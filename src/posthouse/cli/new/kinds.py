"""Kinds of projects: from which folders of `templates` their files come, and what is typed in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

SHOP = "shop"
"""What the recipes call their service: the name of the new one stands wherever this word stands."""
FROM_A_URL = "    DATABASE_URL: postgresql://shop:secret@db/shop"
FROM_PARTS = "    PGHOST: db\n    PGDATABASE: shop\n    PGUSER: shop\n    PGPASSWORD: secret"
ORDER = "curl -X POST localhost:8000/orders/o1        # the row and the fact, or neither"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`layers`: folders whose files are written, later ones over earlier ones; those of the recipes are the documentation's own.
    `steps`: what a person types next, and why."""

    layers: Sequence[str]
    steps: Sequence[tuple[str, str]]
    title: str = ""
    environment: str = FROM_A_URL
    posthouse: Sequence[str] = ("posthouse",)
    target: str = "app"
    migrate: str = ""
    serve: Sequence[str] = ()
    place: str = ORDER
    test: str = "POSTHOUSE_TEST_SERVER=postgresql://shop:secret@localhost/shop pytest"
    dev: Sequence[str] = ("pytest",)

    @property
    def renamed(self) -> bool:
        """Whether the service's name is that of a variable in its code."""
        return self.layers != ("plain",)


UP = ("docker compose up --build --detach", "a database, its migration, a worker")
TEST = ("pip install -r requirements-dev.txt", "then the tests, as README.md says")

KINDS: Mapping[str, Kind] = {
    "plain": Kind(
        layers=("plain",),
        steps=[
            ("posthouse run app", "the service; leave it running"),
            ("python publish.py", "in another terminal: places five orders"),
            ("posthouse status app", "does it add up?"),
        ],
    ),
    "postgres": Kind(
        layers=("recipes/psycopg", "server"),
        steps=[UP, ("docker compose exec worker python shop.py place o1", "an order"), TEST],
        title="A worker with psycopg",
        target="shop",
        migrate="python shop.py init-db && posthouse db upgrade shop",
        place="docker compose exec worker python shop.py place o1",
    ),
    "fastapi": Kind(
        layers=("recipes/fastapi", "server"),
        steps=[UP, ("curl -X POST localhost:8000/orders/o1", "an order"), TEST],
        title="A web application with FastAPI, SQLAlchemy and Alembic",
        migrate="alembic upgrade head",
        serve=("uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8000"),
        dev=("httpx", "pytest", "pytest-asyncio"),
    ),
    "django": Kind(
        layers=("recipes/django", "server", "django"),
        steps=[UP, ("curl -X POST localhost:8000/orders/o1", "an order"), TEST],
        title="A web application with Django",
        environment=FROM_PARTS,
        posthouse=("python", "manage.py", "posthouse"),
        target="shop.events",
        migrate="python manage.py migrate",
        serve=("gunicorn", "project.wsgi", "--bind", "0.0.0.0:8000"),
        test="PGUSER=shop PGPASSWORD=secret python manage.py test",
        dev=(),
    ),
    "flask": Kind(
        layers=("recipes/flask", "server", "flask"),
        steps=[UP, ("curl -X POST localhost:8000/orders/o1", "an order"), TEST],
        title="A web application with Flask and SQLAlchemy",
        migrate="flask init-db && posthouse db upgrade app",
        serve=("gunicorn", "app:app", "--bind", "0.0.0.0:8000"),
    ),
}
