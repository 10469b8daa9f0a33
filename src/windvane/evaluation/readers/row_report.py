"""What a reader tells about rows: those that cannot be used, and those that were read specially."""

from windvane.errors import FileError
from windvane.evaluation.log_batch import BadRow

MAX_LISTED_BAD_ROWS = 100  # later ones are only counted

NEVER_ACTIVATED = "decisions that were never activated, left out"
RENORMALIZED = "decisions whose probabilities were divided by their sum"
APPRENTICE = "decisions of Apprentice mode, credited to the baseline action"
ORPHAN_REWARDS = "rewards without a decision, left out"


class RowReport:
    """Bad rows and counts of one pass over a log."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.bad_rows: list[BadRow] = []
        self.bad_row_count = 0
        self.notes: dict[str, int] = {}  # how many rows, by what was done with them

    def refuse(self, source: str, line: int, reason: str) -> None:
        """Record a row that cannot be used; raise a FileError if the report is strict."""
        if self.strict:
            raise FileError(f"{source}:{line}: {reason}")
        self.bad_row_count += 1
        if len(self.bad_rows) < MAX_LISTED_BAD_ROWS:
            self.bad_rows.append(BadRow(source, line, reason))

    def note(self, text: str, count: int = 1) -> None:
        """Count rows that were read in a special way."""
        if count:
            self.notes[text] = self.notes.get(text, 0) + count
