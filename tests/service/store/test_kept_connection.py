"""The writer's connection stays open, and a failure leaves nothing of its transaction behind."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from windvane.service.store.database import make_engine, resolve_url
from windvane.service.store.writer.writer_process import KeptConnection


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = make_engine(resolve_url(str(tmp_path)), writes=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER UNIQUE)")
    return engine


def insert(kept: KeptConnection, *numbers: int) -> None:
    with kept.begin() as connection:
        for number in numbers:
            connection.exec_driver_sql("INSERT INTO numbers VALUES (?)", (number,))


def read_numbers(engine: Engine) -> list[int]:
    with sqlite3.connect(engine.url.database or "") as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers")]


def test_a_connection_is_checked_out_once(engine: Engine) -> None:
    checkouts: list[object] = []
    event.listen(engine, "checkout", lambda *_: checkouts.append(None))
    kept = KeptConnection(engine)
    for number in range(3):
        insert(kept, number)
        assert read_numbers(engine) == list(range(number + 1))  # committed
    assert len(checkouts) == 1
    kept.close()
    insert(kept, 3)
    assert len(checkouts) == 2
    kept.close()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_an_error_rolls_its_transaction_back(engine: Engine) -> None:
    kept = KeptConnection(engine)
    insert(kept, 1, 2)
    with pytest.raises(Exception, match="UNIQUE"):
        insert(kept, 3, 2)
    insert(kept, 4)
    assert read_numbers(engine) == [1, 2, 4]
    kept.close()


def test_a_commit_that_fails_leaves_no_transaction_open(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE sums (sum INTEGER REFERENCES numbers (number) "
            "DEFERRABLE INITIALLY DEFERRED)"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER negative AFTER INSERT ON numbers WHEN NEW.number < 0 "
            "BEGIN INSERT INTO sums VALUES (100); END"
        )
    kept = KeptConnection(engine)
    insert(kept, 1)
    with pytest.raises(Exception, match="FOREIGN KEY"):
        insert(kept, -2)
    insert(kept, 3)
    assert read_numbers(engine) == [1, 3]
    kept.close()
