"""Studies: the paper's experiment, simulations, tuning, the leaderboard, coverage."""
