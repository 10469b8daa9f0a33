"""Sets of actions that are too many to list: the best action is computed."""
