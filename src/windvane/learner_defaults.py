"""The defaults of a learner, which need no other module: a command line shows them at once."""

AUTO = "auto"  # the half-life that the learner finds by itself
EXPLORATION_PERCENTAGE = 0.02
MAX_ARRAY_SIZE = 4096
ALL_CROSSINGS = "context*action"
