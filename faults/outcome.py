"""The outcome of a case: what was done, what was checked, and which promises were broken."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_VIOLATIONS = 5  # that are kept in words, of one promise in one case
MAX_SENTENCE_LENGTH = 600


@dataclass
class Outcome:
    """Counts and violations; those of several parts of a case are added up."""

    counts: Counter[str] = field(default_factory=Counter)  # what was done, by name
    checks: Counter[str] = field(default_factory=Counter)  # facts compared, by promise
    broken: Counter[str] = field(default_factory=Counter)  # violations, by promise
    violations: list[str] = field(default_factory=list)  # sentences

    def check(self, promise: str, is_kept: bool, sentence: str) -> None:
        """Count one fact; `sentence` says what was seen if the promise is broken."""
        self.checks[promise] += 1
        if not is_kept:
            self.broken[promise] += 1
            if self.broken[promise] <= MAX_VIOLATIONS:
                self.violations.append(f"{promise}: {sentence}"[:MAX_SENTENCE_LENGTH])

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "counts": dict(self.counts),
            "checks": dict(self.checks),
            "broken": dict(self.broken),
            "violations": self.violations,
        }
