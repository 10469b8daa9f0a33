"""Continue with all that was learned when the half-lives of a bank change."""

import math

import numpy as np

from windvane.beliefs.bank.bank import BeliefBank, Lead
from windvane.beliefs.bank.layout import LOSS, Bank
from windvane.types import Floats, Places

LEAST_RATE = 1e-12  # 1/half-life, which tells never from the longest half-life


def transfer_beliefs(old: BeliefBank, new: BeliefBank, now: float, has_same_clock: bool) -> None:
    """Let a new bank continue with all that an old one has learned.

    Each half-life starts from the nearest one of the old bank, and the one nearest to the old
    leader leads. Between clocks in rounds and in seconds, each starts from the old leader, and the
    longest leads. `now` is the time of the newest decision on the clock of the new bank. The old
    bank must not be used afterwards: the two share arrays.
    """
    new.scales, new.lessons = old.scales, old.lessons
    new.weight_count, new.group_count, new.scale_count = (
        *(old.weight_count, old.group_count),
        old.scale_count,
    )
    half_lives, priors = new.rules.half_lives, new.rules.first_priors
    if has_same_clock and np.array_equal(half_lives, old.rules.half_lives):
        new.bank, new.newest, new.lead = old.bank, old.newest, old.lead
        return
    leader, leading_prior = old.leader_half_life, float(old.rules.first_priors[old.lead.column])
    sources: Places = np.array(
        [
            find_column(old, half_life if has_same_clock else leader, prior)
            for half_life, prior in zip(half_lives.tolist(), priors.tolist(), strict=True)
        ]
    )
    judgements = old.bank.judgements[sources]
    judgements[:, LOSS] = 0.0
    new.bank = Bank(
        keys=old.bank.keys,
        sums=np.ascontiguousarray((old.bank.sums * compute_fades(old))[:, :, sources]),
        origins=np.full(len(half_lives), now),
        judgements=judgements,
        leader_errors=old.bank.leader_errors,
        group_keys=old.bank.group_keys,
        evidence=np.ascontiguousarray(old.bank.evidence[:, :, sources]),
    )
    longest = float(half_lives.max())
    column = find_column(new, leader if has_same_clock else longest, leading_prior)
    new.newest, new.lead = now, Lead(column, old.lessons, now)


def find_column(bank: BeliefBank, half_life: float, first_prior: float) -> int:
    """Find the column of a first prior whose half-life is nearest on a logarithmic scale."""
    rates = np.log(1.0 / bank.rules.half_lives + LEAST_RATE)
    distances = np.abs(rates - math.log(1.0 / half_life + LEAST_RATE))
    distances[bank.rules.first_priors != first_prior] = np.inf
    return int(distances.argmin())


def compute_fades(bank: BeliefBank) -> Floats:
    """Compute the factor by which the sums of each column have faded by now, (H,)."""
    fades: Floats = np.exp2((bank.bank.origins - bank.now) / bank.rules.half_lives)
    return fades
