"""What all commands share: the --json flag, results on stdout, messages on stderr."""

import json
import sys
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_message(sentence: str) -> None:
    """Print a sentence for people on stderr."""
    print(f"windvane: {sentence}", file=sys.stderr, flush=True)
