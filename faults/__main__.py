"""`python -m faults`: try all kinds of faults on the service, and print what held."""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from faults.cases import Case, Kind, parse_case
from faults.kinds import HOSTILE_REQUESTS, KILLS, SOAK_MINUTES, find_kind, list_kinds, plan_run
from faults.outcome import Outcome
from faults.results import ResultsFile, format_results, list_units
from faults.stage import Stage

CRASHED = "the case itself"  # in place of a promise, if the case could not be finished


def parse_arguments() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=240.0, help="start no case after so many minutes")
    add("--kills", type=int, default=KILLS, help="kills of processes in a whole run")
    add("--requests", type=int, default=HOSTILE_REQUESTS, help="hostile requests in a whole run")
    add("--soak-minutes", type=int, default=SOAK_MINUTES, help="length of the soak; 0 for none")
    add("--only", action="append", default=[], metavar="KIND", help="run only cases of this kind")
    add("--case", metavar="NAME", help="run one case again, as a violation names it")
    add("--out", type=Path, default=Path("out/faults"), help="folder for results and logs")
    add("--fresh", action="store_true", help="forget the results of earlier runs")
    add("--list", action="store_true", help="list the cases and end")
    return parser.parse_args()


def main() -> int:
    """Run the cases that are not done yet; returns 1 if a promise was broken."""
    arguments = parse_arguments()
    console = Console(stderr=True)
    kinds = list_kinds(arguments.kills, arguments.requests, arguments.soak_minutes)
    cases = plan_run(kinds)
    if arguments.only:
        cases = [case for case in cases if case.kind in arguments.only]
    if arguments.case:
        cases = [parse_case(arguments.case)]
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    path = arguments.out / "results.jsonl"
    if arguments.fresh:
        path.unlink(missing_ok=True)
    results = ResultsFile(path)
    if arguments.case:
        results.results.pop(arguments.case, None)
    obstacles = {sentence for case in cases if (sentence := find_kind(kinds, case).find_obstacle())}
    for sentence in sorted(obstacles):
        console.print(f"left out: {sentence}")
    left = run_cases(arguments, console, kinds, cases, results)
    names = {case.name for case in cases}
    of_this_run = [result for name, result in results.results.items() if name in names]
    print(format_results(of_this_run, list_units(kinds)))
    if left:
        print(f"{left} cases are left: the same command goes on with them")
    broken = [result for result in of_this_run if result["violations"]]
    for result in broken:
        print(f"\n{result['case']}; run it again with: python -m faults --case {result['case']}")
        for sentence in result["violations"]:
            print(f"  {sentence}")
    return 1 if broken else 0


def run_cases(
    arguments: argparse.Namespace,
    console: Console,
    kinds: list[Kind],
    cases: list[Case],
    results: ResultsFile,
) -> int:
    """Run cases until the time is over; returns how many are left."""
    end = time.monotonic() + 60 * arguments.minutes
    waiting = [case for case in cases if case.name not in results.results]
    waiting = [case for case in waiting if find_kind(kinds, case).find_obstacle() is None]
    left = len(waiting)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bar, Stage(arguments.out) as stage:
        task = bar.add_task("faults", total=len(cases), completed=len(cases) - len(waiting))
        for case in waiting:
            if not has_time(case, end):
                continue
            bar.update(task, description=case.name)
            began = time.monotonic()
            outcome = run_case(stage, find_kind(kinds, case), case)
            result = results.add(case, outcome, time.monotonic() - began)
            for sentence in result["violations"]:
                console.print(f"{case.name}: {sentence}", markup=False)
            bar.advance(task)
            left -= 1
    return left


def has_time(case: Case, end: float) -> bool:
    """Whether a case can start; a soak also has to end in time."""
    minutes = case.amount if case.kind == "soak" else 0
    return time.monotonic() + 60 * minutes < end


def run_case(stage: Stage, kind: Kind, case: Case) -> Outcome:
    """Run a case; its files stay if a promise was broken."""
    try:
        outcome = kind.run(stage, case)
    except Exception as reason:
        outcome = Outcome()
        outcome.check(CRASHED, False, f"{type(reason).__name__}: {reason}")
    if not outcome.violations:
        stage.remove_site(case.name)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
