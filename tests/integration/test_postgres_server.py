import psycopg


def test_each_test_has_a_database_of_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE mine (n int)")
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'").fetchone()
        assert found == (1,)


def test_what_another_test_made_is_not_seen(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'").fetchone()
        assert found == (0,)
