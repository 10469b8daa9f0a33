"""The protocol of the writer process: messages survive any split, results have their types."""

import random
from typing import Any

import msgspec

from store_helpers import make_decision, put_reward
from windvane.service.store.rows import Lesson
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.group_commit import Operation
from windvane.service.store.writer.reward_operations import MatchResult, PutReward, RewardTerms
from windvane.service.store.writer.writer_protocol import (
    MessageSplitter,
    add_size,
    decode_request,
    decode_result,
    encode,
)


def test_messages_are_complete_however_the_stream_is_split() -> None:
    generator = random.Random(1)
    messages = [generator.randbytes(generator.choice([0, 1, 3, 500])) for _ in range(200)]
    stream = b"".join(map(add_size, messages))
    splitter = MessageSplitter()
    received: list[bytes] = []
    start = 0
    while start < len(stream):
        end = start + generator.choice([1, 2, 3, 5, 1000])
        received += splitter.feed(stream[start:end])
        start = end
    assert received == messages


def test_a_large_message_in_many_pieces_is_copied_once() -> None:
    copied = 0

    class Piece(bytes):
        """Bytes that count how many bytes are copied when they are added to others."""

        def __radd__(self, other: bytes) -> bytes:
            nonlocal copied
            copied += len(other) + len(self)
            return bytes(other) + bytes(self)

    message = bytes(1 << 20)
    stream = add_size(message)
    splitter = MessageSplitter()
    received: list[bytes] = []
    for start in range(0, len(stream), 1 << 12):
        received += splitter.feed(Piece(stream[start : start + (1 << 12)]))
    assert received == [message]
    assert copied <= 2 * len(stream)


def test_a_request_is_decoded_as_it_was_encoded() -> None:
    operations: tuple[Operation[Any], ...] = (
        PutDecision(make_decision(1, "é"), RewardTerms(5, sums_rewards=True), True),
        put_reward(1, "e", request="r"),
    )
    for number, operation in enumerate(operations):
        request = (number, 1.5, operation)
        assert decode_request(encode(request)) == request


def test_a_result_is_decoded_with_its_type() -> None:
    lesson = Lesson(1, 2, "observe", 0.5, 3, 4, 5, b"features")
    result = MatchResult("learned", (lesson,))
    decoded = decode_result[PutReward](msgspec.Raw(encode(result)))
    assert decoded == result
    assert (type(decoded), type(decoded.lessons[0])) == (MatchResult, Lesson)
