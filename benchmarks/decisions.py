"""Rewards of Windvane's learner from its defaults, beside other libraries, on many streams.

`python benchmarks/decisions.py` plays every contestant on every stream of the reported set with
five seeds and prints three tables; `--json` prints them for machines. `--real` plays real data
with ten seeds, `--file data.csv:label` a table of yours. Each finished game is written
to `--results`, so that a run can be stopped and continued. The other libraries are installed with

    pip install vowpalwabbit bayesianbandits mabwiser contextualbandits river scikit-learn

Reward is the mean of the expected reward of the chosen actions. The time is CPU time for one choice
and one lesson. A game that would take longer than `--limit` seconds is given up.
"""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contestants import CONTESTANTS, list_missing
from benchmarks.games import Game, play_missing, read_results
from benchmarks.real_streams import PIP_NAMES, RealStream
from benchmarks.standings import (
    format_markdown,
    list_others,
    list_real,
    list_rows,
    summarise,
)
from benchmarks.stream_sets import SETS
from windvane._terminal.tables import format_table


def parse_words(words: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--set", choices=[*SETS], default="reported", help="which streams")
    parser.add_argument("--real", action="store_true", help="the same as --set real --seeds 10")
    parser.add_argument("--file", action="append", metavar="FILE.csv:LABEL", help="a table to play")
    parser.add_argument("--streams", help="names of streams, with commas between; default: all")
    parser.add_argument("--contestants", help=f"of {', '.join(CONTESTANTS)}; default: all")
    parser.add_argument("--seeds", type=int, default=5, help="games of each pair")
    parser.add_argument("--results", type=Path, default=Path("out/decisions.jsonl"))
    parser.add_argument("--again", action="store_true", help="play finished games once more")
    parser.add_argument("--show", action="store_true", help="play nothing, only print")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a game may take")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figure", type=Path, help="draw the ratios into this folder")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print tables for a document")
    return parser.parse_args(words)


def select(kind: str, text: str | None, known: list[str]) -> list[str]:
    """Return the named streams or contestants, or all of them."""
    names = [name.strip() for name in text.split(",")] if text else known
    unknown = [name for name in names if name not in known]
    if unknown:
        fail(f"{kind} {unknown[0]!r} is not known; known are {', '.join(known)}")
    return names


def fail(sentence: str) -> None:
    """Say why nothing can be done, and end."""
    tell(sentence)
    raise SystemExit(2)


def tell(sentence: str) -> None:
    """Print a sentence for people on stderr."""
    print(f"decisions: {sentence}", file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> None:
    """Play what has no result yet, then print the tables."""
    asked = parse_words(words)
    if asked.real:
        asked.set, asked.seeds = "real", max(asked.seeds, 10)
    if asked.file:
        asked.set = "files"
    chosen_set = SETS[asked.set]
    streams = asked.file or select("stream", asked.streams, [*chosen_set.streams])
    contestants = select("contestant", asked.contestants, [*CONTESTANTS])
    seeds = range(chosen_set.first_seed, chosen_set.first_seed + asked.seeds)
    games = [
        Game(asked.set, stream, contestant, seed)
        for seed in seeds
        for stream in streams
        for contestant in contestants
    ]
    results = read_results(asked.results)
    failed = 0
    if not asked.show:
        missing = list_missing(contestants)
        if asked.set == "reported" and "digits" in streams:
            missing += [] if find_spec("sklearn") else ["scikit-learn"]
        if asked.set in ("real", "real-tuning"):
            chosen = [*map(chosen_set.streams.get, streams)]
            packages = {each.package for each in chosen if isinstance(each, RealStream)}
            missing += sorted(PIP_NAMES[each] for each in packages if find_spec(each) is None)
        if missing:
            instead = "or leave them out with --contestants and --streams"
            fail(f"not installed: {', '.join(missing)}; pip install {' '.join(missing)}, {instead}")
        if asked.again:
            results = {game: result for game, result in results.items() if game not in games}
        failed = play_missing(games, results, asked.results, asked.limit, asked.processes, tell)
    played = [results[game] for game in games if game in results]
    if not played:
        fail(f"no results in {asked.results}; run without --show")
    rows, summary, peers = list_rows(played), summarise(played), list_others(played)
    if asked.set in ("real", "real-tuning", "files"):
        summary, peers = list_real(played), []
    if asked.json:
        tables = {"results": rows, "summary": summary, "others": peers}
        print(json.dumps(tables, indent=2, ensure_ascii=False))
    else:
        write = format_markdown if asked.markdown else format_table
        filled = [table for table in (rows, summary, peers) if table]
        print("\n\n".join(map(write, filled)))
    if asked.figure is not None:
        from benchmarks.decisions_figure import write_figure

        for path in write_figure(played, asked.figure):
            tell(f"wrote {path}")
    if failed:
        tell(f"{failed} games failed")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
