"""Features: from JSON to vectors."""

ALL_CROSSINGS = "context*action"  # the default, which a command line shows without NumPy
