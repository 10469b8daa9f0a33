"""The command line: one command per task."""


def main() -> None:
    """Run the command line."""
