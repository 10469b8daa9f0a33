"""The commands that ask a log: check and evaluate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._terminal.console import AsJson, make_bars, print_json, print_message
from windvane._terminal.tables import Cell, format_table
from windvane.errors import SettingError

if TYPE_CHECKING:
    from windvane.evaluation import Evaluation, PolicyResult
    from windvane.evaluation.evaluator import EvaluationSettings
    from windvane.evaluation.log_batch import Log
    from windvane.evaluation.log_check import CheckReport
    from windvane.evaluation.tuning import LearnerTuning

SERVICE_DATABASE = "windvane.db"  # in a data directory
DEFAULT_LOOP = "default"
LogPaths = Annotated[
    list[str],
    typer.Argument(metavar="LOG", help="Files, directories or patterns; .gz is read too."),
]
Format = Annotated[
    str,
    typer.Option(help="windvane, dsjson, vw, csv, parquet or obd; auto finds it by the bytes."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of CSV and Parquet as KEY=COLUMN, separated by commas, such as "
        "action=arm,reward=click or context=age;city. Keys: action, reward, probability, time, "
        "context, probabilities, actions, count, excluded, event_id, context_json, multiplicity, "
        "defaulted. May be repeated."
    ),
]
Loop = Annotated[
    str | None,
    typer.Option(
        help="LOG is the data directory of a service, or the URL of its database: the loop whose "
        "decisions are read; default: default."
    ),
]
DEFAULT_POLICIES = ("logged", "first", "random", "learner")
TUNED = ("half-life",)
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first row that is bad.")]


def check(
    log: LogPaths,
    format: Format = "auto",
    columns: Columns = None,
    strict: Strict = False,
    loop: Loop = None,
    as_json: AsJson = False,
) -> None:
    """Check whether policies can be evaluated on a log. The exit code is 1 if they cannot."""
    from windvane.evaluation.log_check import check as check_log

    opened = open_log(log, format, columns, strict, loop)
    with show_progress("check", opened):
        report = check_log(opened)
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(0 if report.is_usable else 1)


def evaluate(
    log: LogPaths,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help='A policy: logged, first, random, action=ID, learner, "halfLife=2 days '
            'explorationPercentage=0.05", "MEMORY * EXPLORATION", or a name that `windvane '
            "policies` lists. May be repeated. Default: logged, first, random, learner."
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(help="half-life: try half-lives and shares of exploration, confirm the best."),
    ] = None,
    half_life: Annotated[
        str, typer.Option(help="Age at which a decision counts half in the recent value.")
    ] = "7 days",
    reward_model: Annotated[
        bool | None,
        typer.Option(
            "--reward-model/--no-reward-model",
            help="Whether a model of the rewards makes the values of fixed policies more exact; "
            "by default if the log has features and at most 200 000 rows.",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(help="First time, such as 2026-01-31T12:00.")] = None,
    until: Annotated[str | None, typer.Option(help="Time after the last decision.")] = None,
    format: Format = "auto",
    columns: Columns = None,
    loop: Loop = None,
    strict: Strict = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the picture and the numbers.")
    ] = None,
    on: Annotated[
        str, typer.Option(help="threads, ray, or the address of a Ray cluster.")
    ] = "threads",
    as_json: AsJson = False,
) -> None:
    """Estimate from a log what other policies would have earned."""
    from windvane.evaluation.evaluator import LOCAL, evaluate_on, make_settings
    from windvane.evaluation.learners.candidates import list_candidates

    if tune is not None and (tune not in TUNED or policy):
        raise SettingError(f"evaluate: --tune takes {TUNED[0]}, and no --policy beside it")
    candidates = list_candidates(policy or DEFAULT_POLICIES)
    settings = make_settings(
        half_life=half_life, reward_model=reward_model, seed=seed, since=since, until=until
    )
    opened = open_log(log, format, columns, strict, loop)
    if tune is not None:
        _tune(opened, settings, out, on, as_json)
        return
    with show_progress("evaluate", opened) if on == LOCAL else nullcontext():
        result = evaluate_on(on, opened, candidates, settings)
    if as_json:
        print_json(result.to_json())
    else:
        print(format_evaluation(result))
    for sentence in list_sentences(result):
        print_message(sentence)
    if out is not None:
        _write(result, out, as_json)


def _tune(
    log: "Log", settings: "EvaluationSettings", out: Path | None, on: str, as_json: bool
) -> None:
    from windvane.evaluation.evaluator import LOCAL
    from windvane.evaluation.tuning import tune

    with show_progress("tune", log) if on == LOCAL else nullcontext():
        tuning = tune(log, settings, on=on)
    if as_json:
        print_json(tuning.to_json())
    else:
        print(format_tuning(tuning))
    if not as_json and tuning.best.gain.verdict != "worse":
        print_message(f"such a loop: windvane loop create NAME {tuning.flags}")
        print_message("with what this log teaches: windvane import LOG... --loop NAME")
    for sentence in dict.fromkeys([*tuning.grid.warnings, *tuning.held_out.warnings]):
        print_message(sentence)
    if out is not None:
        _write(tuning.held_out, out, as_json)


def _write(evaluation: "Evaluation", folder: Path, as_json: bool) -> None:
    """Write the numbers as JSON and the figure, and say where they are."""
    import json

    from windvane._terminal.figures import save_figure
    from windvane.evaluation.figure import draw_evaluation
    from windvane.persistence import replace_file

    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / "evaluation.json") as draft:
        Path(draft).write_text(json.dumps(evaluation.to_json(), indent=2), "utf-8")
    picture, *_ = save_figure(draw_evaluation(evaluation), folder, "evaluation")
    say = print_message if as_json else print
    say(f"The picture is {picture}")


def open_log(
    paths: list[str],
    format: str,
    columns: list[str] | None,
    strict: bool,
    loop: str | None = None,
) -> "Log":
    """Open the log that the arguments of a command name: files, or the data of a service."""
    from windvane.evaluation.readers import open_log as open_files
    from windvane.evaluation.readers.column_mapping import parse_columns

    if len(paths) == 1 and is_service_data(paths[0]):
        return open_service_data(paths[0], loop or DEFAULT_LOOP)
    if loop is not None:
        message = "--loop: LOG must be the data directory of a service, or the URL of its database"
        raise SettingError(f"{message}, got {' '.join(paths)}")
    mapping = parse_columns(",".join(columns)) if columns else None
    return open_files(paths, format, mapping, strict)


def is_service_data(path: str) -> bool:
    """Whether a path is the data directory of a service, or the URL of its database."""
    return "://" in path or (Path(path) / SERVICE_DATABASE).is_file()


def open_service_data(where: str, loop: str) -> "Log":
    """Open the decisions of a loop in the data of a service, which may run."""
    from windvane.service.cli import needs_extra

    with needs_extra("serve"):
        from windvane.service.store.log import LogReader
        from windvane.service.store.logged_decisions import LoggedDecisions
    return LoggedDecisions(LogReader(where), loop)


@contextmanager
def show_progress(task: str, log: "Log") -> Iterator[None]:
    """Show a bar on stderr while a log is read, if the log knows how far it is."""
    from windvane.evaluation.readers.file_log import FileLog

    if not isinstance(log, FileLog):
        yield
        return
    with make_bars() as bars:
        bar = bars.add_task(task, total=100, unit="percent")
        log.on_progress = lambda share: bars.update(bar, completed=int(100 * share))
        try:
            yield
        finally:
            log.on_progress = None


def _print_report(report: "CheckReport") -> None:
    rows = [
        {"check": finding.name, "level": finding.level, "finding": finding.sentence}
        for finding in report.findings
    ]
    print(f"{report.description}\n\n{format_table(rows)}")
    for text, count in report.notes.items():
        print_message(f"{count} {text}")
    for bad in report.bad_rows:
        print_message(f"bad row {bad.source}:{bad.line}: {bad.reason}")


def format_evaluation(evaluation: "Evaluation") -> str:
    """The table of the policies, below a line that says which rows it is about."""
    rows = f"{evaluation.rows:,} rows of {evaluation.log}"
    if evaluation.since is not None and evaluation.until is not None:
        rows += f", {format_time(evaluation.since)} to {format_time(evaluation.until)}"
    return f"{rows}\n\n{format_policies(evaluation)}"


def format_policies(evaluation: "Evaluation") -> str:
    """The table of the policies."""
    return format_table([_describe(policy) for policy in evaluation.policies])


def list_sentences(evaluation: "Evaluation") -> Iterator[str]:
    """What the reader must know, about the log first and then about each policy."""
    yield from evaluation.warnings
    for policy in evaluation.policies:
        for sentence in policy.warnings:
            yield f"{policy.name}: {sentence}"


def format_tuning(tuning: "LearnerTuning") -> str:
    """Both tables of a tuning, and the recommendation."""
    gain = tuning.best.gain
    return "\n\n".join(
        [
            f"The grid, on {format_evaluation(tuning.grid)}",
            f"The best of the grid, on the {tuning.best.rows:,} rows since then",
            format_policies(tuning.held_out),
            f"{tuning.sentence}\n"
            f"gain over what was logged: {gain.value:+.4g}, "
            f"between {gain.interval.low:+.4g} and {gain.interval.high:+.4g}",
        ]
    )


def format_time(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def describe_verdict(policy: "PolicyResult") -> str:
    """Whether a policy is better than what was logged, in words."""
    if policy.source == "Online":
        return "what was logged"
    if policy.gain.verdict != "not yet":
        return policy.describe_verdict()
    more = policy.gain.rows_needed
    return "not known yet" if more is None else f"not known yet; {more:,} more rows"


def _describe(policy: "PolicyResult") -> dict[str, Cell]:
    low, high = policy.sequence
    level = f"{100 * (1 - policy.alpha):.3g} % interval, at any time"
    return {
        "policy": policy.name,
        "value": round(policy.value.value, 4),
        level: f"{low:.4g} to {high:.4g}",
        "gain": "" if policy.source == "Online" else f"{policy.gain.value:+.4f}",
        "against what was logged": describe_verdict(policy),
        "effective rows": round(policy.diagnostics.effective_rows),
    }


EVALUATION_COMMANDS: tuple[Callable[..., object], ...] = (check, evaluate)
