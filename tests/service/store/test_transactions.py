"""A failure leaves nothing of its transaction behind."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine

from windvane.service.store.database import make_engine, resolve_url
from windvane.service.store.files.data_directory import OpenedFiles
from windvane.service.store.writer.writer_process import begin_checked


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = make_engine(resolve_url(str(tmp_path)), writes=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER UNIQUE)")
    return engine


def insert(engine: Engine, *numbers: int) -> None:
    with begin_checked(engine, OpenedFiles(engine.url)) as connection:
        for number in numbers:
            connection.exec_driver_sql("INSERT INTO numbers VALUES (?)", (number,))


def read_numbers(engine: Engine) -> list[int]:
    with sqlite3.connect(engine.url.database or "") as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers")]


def test_an_error_rolls_its_transaction_back(engine: Engine) -> None:
    insert(engine, 1, 2)
    with pytest.raises(Exception, match="UNIQUE"):
        insert(engine, 3, 2)
    insert(engine, 4)
    assert read_numbers(engine) == [1, 2, 4]


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
    insert(engine, 1)
    with pytest.raises(Exception, match="FOREIGN KEY"):
        insert(engine, -2)
    insert(engine, 3)
    assert read_numbers(engine) == [1, 3]
