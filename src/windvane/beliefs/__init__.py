"""What a policy has learned: one room for each kind of belief."""
