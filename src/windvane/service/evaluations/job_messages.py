"""What the process of an evaluation sends to the service: the first byte of a message is its kind.

Every message is preceded by its size, as `store/writer/writer_protocol.py` has it.
"""

PROGRESS = b"p"  # the share that is done, as text
OUTCOME = b"o"  # an `Outcome` as JSON
SERIES = b"s"  # a list of `PolicySeries` as JSON
FAILURE = b"f"  # a sentence
