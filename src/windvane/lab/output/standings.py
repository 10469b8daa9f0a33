"""Standings of the leaderboard: shares of the regret that playing at random has."""

from typing import Any, NamedTuple

from windvane._terminal.tables import Cell

FIXED_COLUMNS = ("rank", "policy", "score %", "±")  # all others are worlds


class Standing(NamedTuple):
    """How a policy did."""

    name: str
    score: float  # mean share over the worlds
    error: float  # standard error of the score over replications
    shares: dict[str, float]  # by world

    def row(self, rank: int) -> dict[str, Cell]:
        """Return the standing as a row of a table, in per cent."""
        shares = {title: round(100.0 * share, 1) for title, share in self.shares.items()}
        score = round(100.0 * self.score, 1)
        error = round(100.0 * self.error, 2)
        return {"rank": rank, "policy": self.name, "score %": score, "±": error, **shares}


def from_row(row: dict[str, Any]) -> Standing:
    """Return the standing that a row in per cent stands for."""
    shares = {title: share / 100.0 for title, share in row.items() if title not in FIXED_COLUMNS}
    return Standing(row["policy"], row["score %"] / 100.0, row["±"] / 100.0, shares)
