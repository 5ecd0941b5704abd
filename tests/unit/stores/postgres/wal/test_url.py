"""One URL for two drivers."""

from psycopg.conninfo import conninfo_to_dict

from posthouse.stores.postgres.wal.stream import libpq_url


def test_what_asyncpg_sends_as_settings_libpq_gets_as_options() -> None:
    found = conninfo_to_dict(
        libpq_url("postgresql://a:b%40c@h:5433/db?sslmode=disable&work_mem=8%20MB&search_path=a,b")
    )
    assert found["options"] == "-c bytea_output=hex -c work_mem=8\\ MB -c search_path=a,b"
    assert {name: found[name] for name in ("user", "password", "host", "port", "dbname", "sslmode")} == {
        "user": "a", "password": "b@c", "host": "h", "port": "5433", "dbname": "db", "sslmode": "disable",
    }  # fmt: skip


def test_options_that_were_given_stay_and_a_primary_is_wanted() -> None:
    found = conninfo_to_dict(libpq_url("postgresql://h/db?options=-c%20jit%3Doff"))
    assert found["options"] == "-c jit=off -c bytea_output=hex"
    assert found["target_session_attrs"] == "read-write"
    assert conninfo_to_dict(libpq_url("postgresql://h/db?target_session_attrs=any"))["target_session_attrs"] == "any"
