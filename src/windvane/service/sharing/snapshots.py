"""Snapshots: the belief of a loop after a lesson, as the log keeps it, with a checksum.

The belief is a fold over the lessons, so an older snapshot leads to the same bits, and so do all
lessons without a snapshot.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from windvane.errors import FileError, StoreError
from windvane.service.loops.learner_model import LearnerModel, Moment
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import LogReader, SnapshotKey
from windvane.service.store.rows import SettingsChange

NOT_DAMAGES = ("locked", "full", "unreachable", "readonly")  # of a snapshot: try again later


class SnapshotContent(msgspec.Struct, frozen=True):
    """A stored belief: the model, and round and time of the newest decision that it learned."""

    model: bytes
    newest: tuple[int, int]
    checksum: int


decode_snapshot = msgspec.msgpack.Decoder(SnapshotContent).decode


def encode_snapshot(model: LearnerModel, newest: Moment, loop: int, lesson: int) -> bytes:
    """A model of a loop (id) after a lesson (id), as the log keeps it."""
    saved = model.save()
    checksum = _compute_checksum(saved, newest, loop, lesson)
    return msgspec.msgpack.encode(SnapshotContent(saved, newest, checksum))


def _compute_checksum(model: bytes, newest: tuple[int, int], loop: int, lesson: int) -> int:
    return zlib.crc32(model, zlib.crc32(repr((*newest, loop, lesson)).encode()))


class LoadedSnapshot(NamedTuple):
    """A loop as it was after a lesson."""

    settings: LoopSettings
    model: LearnerModel
    newest: Moment  # of the newest decision that was learned
    lesson: int  # id of the last lesson that was learned


class LoadedBelief(NamedTuple):
    """What was loaded, and which snapshots were damaged."""

    snapshot: LoadedSnapshot | None  # None: all lessons are in the log, and are learned again
    damage: str | None  # which snapshots are damaged and what is used instead; None: none is
    changes: list[SettingsChange]  # of settings: at least all that came before the snapshot


def load_newest_snapshot(store: LogReader, loop: int, settings: LoopSettings) -> LoadedBelief:
    """Load the newest snapshot of a loop (id) that is not damaged.

    `settings` are those of a snapshot that is older than all changes of settings. Raises a
    StoreError if no snapshot can be read and some lessons are deleted.
    """
    keys = store.list_snapshots(loop)
    # Read after the snapshots, so that no change is missing that another server wrote before one.
    changes = store.list_settings_changes(loop)
    damages: list[str] = []
    for key in keys:
        applied = list_changes_before(changes, key.lesson)
        try:
            own = LoopSettings.from_json(applied[-1].settings) if applied else settings
            snapshot = _load(store, loop, key, own)
        except Exception as reason:
            if isinstance(reason, StoreError) and reason.kind in NOT_DAMAGES:
                raise
            damages.append(f"the snapshot after lesson {key.lesson} is damaged ({reason})")
        else:
            remedy = f"the snapshot after lesson {key.lesson} was used"
            return LoadedBelief(snapshot, _describe_damage(damages, remedy), changes)
    if damages and _has_deleted_lessons(store, loop):
        message = f"{damages[0]}, and older lessons are deleted: restore a backup"
        raise StoreError(f"store: {message}", "damaged")
    remedy = "all lessons of the log were learned again"
    return LoadedBelief(None, _describe_damage(damages, remedy), changes)


def list_changes_before(changes: Sequence[SettingsChange], lesson: int) -> list[SettingsChange]:
    """The changes of settings that came before a lesson (id)."""
    return [change for change in changes if change.lesson < lesson]


def _load(store: LogReader, loop: int, key: SnapshotKey, settings: LoopSettings) -> LoadedSnapshot:
    content = decode_snapshot(store.read_snapshot(loop, key).blob)
    checksum = _compute_checksum(content.model, content.newest, loop, key.lesson)
    if content.checksum != checksum:
        raise FileError("its checksum does not fit")
    model = LearnerModel.load(settings, content.model)
    return LoadedSnapshot(settings, model, Moment(*content.newest), key.lesson)


def _has_deleted_lessons(store: LogReader, loop: int) -> bool:
    funnel = store.read_funnel(loop)
    return store.count_lessons(loop) < funnel.learned + funnel.summed + funnel.default


def _describe_damage(damages: Sequence[str], remedy: str) -> str | None:
    return f"{'; '.join(damages)}; {remedy}" if damages else None
