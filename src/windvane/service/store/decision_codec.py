"""How the log stores a decision: features without zeros, and no answer, which can be rebuilt.

The features of a full belief are hashed, so most of their numbers are zero and many of the others
are equal. Packed features hold each distinct number once. They have a length that is no multiple of
8, and plain float64 features always have one that is. Both forms unpack to the same bits. The
features of a diagonal belief are stored as `windvane.beliefs.bank.lesson_codec` encodes them.
"""

import struct
from array import array

import msgspec
import numpy as np

from windvane.beliefs.bank.lesson_format import is_lesson
from windvane.errors import StoreError
from windvane.service.schemas import Ranked, RankResponse
from windvane.service.store.rows import DecisionRow

MAX_PACKED_DIM = 2**16 - 1
MAX_DISTINCT_NUMBERS = 128  # the codes of which have 7 bits
_SIGN_BIT = np.uint64(1 << 63)
_MAGNITUDE_BITS = np.uint64((1 << 63) - 1)
_SIGN_TO_CODE = np.uint64(63 - 7)  # shifts the sign of a float64 to the highest bit of a code
_CODE_SIGN = np.uint8(0x80)
_CODE_MAGNITUDE = np.uint8(0x7F)
_HEAD = struct.Struct("<HHB")  # dim, numbers that are not zero, distinct ones among them
_NUMBER_BYTES = 8
_encode_json = msgspec.json.Encoder().encode

decode_action_ids = msgspec.json.Decoder(list[str]).decode  # of a JSON list of action ids


def pack_features(features: bytes) -> bytes:
    """Pack float64 features; those that would not get shorter, and lessons, stay as they are.

    After the head come the distinct magnitudes as 8 bytes each, then one byte for each number that
    is not zero: its sign in the highest bit, and which of the magnitudes it has. Then come the
    places of these numbers: a bitmap of all places, or two bytes for each place if that is shorter.
    """
    if is_lesson(features):
        return features
    bits = np.frombuffer(features, np.uint64)  # −0.0 has the bits of a number that is not zero
    dim = len(bits)
    places = bits.nonzero()[0]
    count = len(places)
    if dim > MAX_PACKED_DIM or 2 * count > dim:
        return features
    numbers = bits[places]
    code_of: dict[int, int] = {}
    magnitudes = (numbers & _MAGNITUDE_BITS).tolist()
    magnitude_codes = [code_of.setdefault(each, len(code_of)) for each in magnitudes]
    if len(code_of) > MAX_DISTINCT_NUMBERS:
        return features
    codes = np.array(magnitude_codes, np.uint64) | (numbers & _SIGN_BIT) >> _SIGN_TO_CODE
    if _has_bitmap(dim, count):
        packed_places = np.packbits(bits != 0).tobytes()
    else:
        packed_places = places.astype(np.uint16).tobytes()
    head = _HEAD.pack(dim, count, len(code_of))
    packed = b"".join((head, array("Q", code_of), codes.astype(np.uint8).tobytes(), packed_places))
    if len(packed) % _NUMBER_BYTES == 0:
        packed += b"\0"
    return packed if len(packed) < len(features) else features


def unpack_features(stored: bytes) -> bytes:
    """Unpack features to float64; plain ones and lessons are returned as they are."""
    if len(stored) % _NUMBER_BYTES == 0 or is_lesson(stored):
        return stored
    try:
        return _unpack(stored)
    except (ValueError, IndexError, struct.error):
        message = "store: the log holds damaged features of a decision: restore a backup"
        raise StoreError(message, "damaged") from None


def _unpack(stored: bytes) -> bytes:
    dim, count, distinct_count = _HEAD.unpack_from(stored)
    distinct = np.frombuffer(stored, np.uint64, distinct_count, _HEAD.size)
    codes_start = _HEAD.size + _NUMBER_BYTES * distinct_count
    codes = np.frombuffer(stored, np.uint8, count, codes_start)
    signs = (codes & _CODE_SIGN).astype(np.uint64) << _SIGN_TO_CODE
    numbers = distinct[codes & _CODE_MAGNITUDE] | signs
    bits = np.zeros(dim, np.uint64)
    if _has_bitmap(dim, count):
        bitmap = np.frombuffer(stored, np.uint8, -(-dim // 8), codes_start + count)
        bits[np.unpackbits(bitmap, count=dim).view(np.bool_)] = numbers
    else:
        bits[np.frombuffer(stored, np.uint16, count, codes_start + count)] = numbers
    return bits.tobytes()


def _has_bitmap(dim: int, count: int) -> bool:
    return 16 * count > dim


def render_answer(
    event_id: str, action_ids: list[str], probabilities: list[float], chosen: int, degraded: bool
) -> bytes:
    """Render the answer to a rank request; the same decision always has the same bytes."""
    ranking = [*map(Ranked, action_ids, probabilities)]
    return _encode_json(RankResponse(ranking, event_id, action_ids[chosen], degraded))


def get_answer(decision: DecisionRow) -> bytes:
    """Rebuild the answer of a decision from its fields."""
    return rebuild_answer(
        decision.event_id,
        decision.actions,
        decision.probabilities,
        decision.chosen,
        decision.degraded,
    )


def rebuild_answer(
    event_id: str, action_ids_json: str, probabilities: bytes, chosen: int, degraded: bool
) -> bytes:
    """Render the answer of a stored decision, from its columns."""
    try:
        action_ids = decode_action_ids(action_ids_json)
        numbers = np.frombuffer(probabilities).tolist()
        return render_answer(event_id, action_ids, numbers, chosen, degraded)
    except (ValueError, IndexError):
        message = f"store: the log holds a damaged decision of the event {event_id!r}"
        raise StoreError(message, "damaged") from None
