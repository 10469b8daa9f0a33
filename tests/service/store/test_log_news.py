"""News of the log: how far it has got, and notifications between servers."""

from collections.abc import Callable
from typing import Any

from store_helpers import create_loop, put_decision, put_reward
from waiting import wait_until
from windvane.errors import StoreError
from windvane.service.store.database import resolve_url
from windvane.service.store.log import Store
from windvane.service.store.writer.group_commit import Operation, QueuedOperation, WriteOutcome
from windvane.service.store.writer.log_news import LogNews, NotificationThread, collect_news
from windvane.service.store.writer.loop_operations import PutSettings


def test_the_news_of_a_group_name_the_newest_lesson_and_change_of_each_loop(where: str) -> None:
    with Store(where) as store:
        one, other = create_loop(store, "one"), create_loop(store, "other")
        for loop, event, value in ((one, "a", 0.1), (one, "b", 0.2), (other, "a", 0.3)):
            store.write(put_reward(loop, event, value))  # before its decision
        operations: list[Operation[Any]] = [
            put_decision(one, "b"),
            put_decision(one, "a"),
            put_decision(other, "a"),
            PutSettings(other, "{}", 0, "test"),
            put_decision(other, "c"),
        ]
        results = store.write_group(operations)
    group = [QueuedOperation(operation, ticket) for ticket, operation in enumerate(operations)]
    outcomes = [WriteOutcome(ticket, result, None) for ticket, result in enumerate(results)]
    failed = WriteOutcome(9, None, StoreError("store: no", "refused"))
    news = {each.loop: each for each in collect_news(group, [*outcomes, failed])}
    assert news.keys() == {one, other}
    newest = [max(lesson.id for lesson in results[number].lessons) for number in range(3)]
    assert news[one] == LogNews(one, max(newest[:2]), 0)
    assert news[other] == LogNews(other, newest[2], results[3].id)


def is_heard(sender: NotificationThread, heard: list[LogNews]) -> bool:
    """Announce something; the other thread may not listen yet."""
    sender.announce([LogNews(3, 2, 7)])
    return bool(heard)


def test_a_notification_reaches_the_other_servers_and_not_its_sender(
    postgresql: Callable[[], str],
) -> None:
    url = resolve_url(postgresql())
    heard: dict[str, list[LogNews]] = {"sender": [], "other": []}
    threads = {name: NotificationThread(url, heard[name].append) for name in heard}
    try:
        wait_until(lambda: is_heard(threads["sender"], heard["other"]))
        threads["sender"].announce([LogNews(4, 1_000_000, 0), LogNews(4, 5, 9)])
        wait_until(lambda: LogNews(4, 1_000_000, 9) in heard["other"])  # the newest of each
        assert heard["sender"] == []
    finally:
        for thread in threads.values():
            thread.close()


def test_notifications_go_on_after_their_connection_was_cut(postgresql: Callable[[], str]) -> None:
    import psycopg

    where = postgresql()
    heard: list[LogNews] = []
    sender = NotificationThread(resolve_url(where), lambda _: None)
    other = NotificationThread(resolve_url(where), heard.append)
    try:
        wait_until(lambda: is_heard(sender, heard))
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        heard.clear()
        wait_until(lambda: is_heard(sender, heard))
    finally:
        sender.close()
        other.close()
