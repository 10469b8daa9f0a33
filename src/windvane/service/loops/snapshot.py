"""A snapshot of a loop: the belief after a lesson, as the log keeps it, with a checksum."""

import zlib

import msgspec


class SnapshotContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored belief: the model, and round and time of the newest decision that it learned."""

    policy: bytes
    newest: tuple[int, int]
    checksum: int | None = None  # None: written by a version that had none


decode_snapshot = msgspec.msgpack.Decoder(SnapshotContent).decode


def compute_checksum(policy: bytes, newest: tuple[int, int], loop: int, lesson: int) -> int:
    """The checksum of a snapshot of a loop (id) after a lesson (id)."""
    return zlib.crc32(policy, zlib.crc32(repr((*newest, loop, lesson)).encode()))
