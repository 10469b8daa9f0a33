"""How bytes of a lesson are distinguished from dense features, for code that never decodes them."""


def is_lesson(encoded: bytes) -> bool:
    """Whether bytes are features of a lesson, and not dense ones of a policy."""
    return len(encoded) % 8 != 0 and encoded.startswith(b"\0\0")
