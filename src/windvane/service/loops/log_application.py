"""Apply what was written to the log to a loop, in the order of the log.

A lesson and a change of settings name what the log had before them. A loop that has missed some of
that, because another server has written it, reads it from the log first.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from windvane.errors import StoreError
from windvane.service.loops.loop import Loop
from windvane.service.store.database import is_database_failure
from windvane.service.store.rows import Lesson, SettingsChange
from windvane.service.store.writer.decision_operations import (
    ActivateResult,
    ExpireResult,
    PutDecisionResult,
)
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.reward_operations import PutRewardResult, PutRewardsResult

RESULTS_WITH_LESSONS = (
    PutDecisionResult,
    PutRewardResult,
    PutRewardsResult,
    ActivateResult,
    ExpireResult,
)


def teach(loop: Loop, result: Any) -> None:
    """Let a loop learn the result of an operation; called in the order of the log."""
    lessons: Sequence[Lesson] = getattr(result, "lessons", ())
    if type(result) is PutDecisionResult and not lessons and not loop.must_restore:
        return  # nothing follows from most decisions
    is_long = (
        isinstance(result, (SettingsChange, LogNews))
        or loop.must_restore
        or (bool(lessons) and (loop.has_missed(lessons[0]) or loop.is_long_lesson(lessons)))
    )
    loop.work.run(partial(_apply_result, loop, result), is_long)


def restore_if_outdated(loop: Loop) -> None:
    """Read a loop from the log again if the log may hold more than the loop has applied."""
    if loop.must_restore or loop.is_outdated():
        loop.restore()


def _catch_up(loop: Loop) -> bool:
    """Read what a loop has missed; False if the log cannot be read now."""
    try:
        loop.catch_up()
    except StoreError:
        loop.must_restore = True
        return False
    return True


def _learn(loop: Loop, lessons: Sequence[Lesson]) -> None:
    """Learn lessons, after all that the log has before them."""
    for lesson in lessons:
        if loop.has_missed(lesson) and not _catch_up(loop):
            return
        loop.learn([lesson])


def _change_settings(loop: Loop, change: SettingsChange) -> None:
    """Take over new settings, after all that the log has before them."""
    if not loop.has_missed_change(change) or _catch_up(loop):
        loop.change_settings(change)


def _apply_result(loop: Loop, result: Any) -> None:
    if isinstance(result, StoreError):
        # The operation may be in the log although its acknowledgement was lost.
        loop.must_restore |= is_database_failure(result)
    elif loop.must_restore:
        with suppress(StoreError):
            loop.restore()
    elif isinstance(result, RESULTS_WITH_LESSONS):
        _learn(loop, result.lessons)
    elif isinstance(result, LogNews):
        if loop.is_behind(result.lesson, result.change):
            _catch_up(loop)
    elif isinstance(result, SettingsChange):
        _change_settings(loop, result)
