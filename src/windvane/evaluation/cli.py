"""The commands that ask a log: check and evaluate."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._terminal.console import AsJson, make_bars, print_json, print_message
from windvane._terminal.tables import format_table
from windvane.errors import SettingError

if TYPE_CHECKING:
    from windvane.evaluation import Evaluation, LearnerTuning
    from windvane.evaluation.estimates.result import HtmlResult
    from windvane.evaluation.log_batch import Log
    from windvane.evaluation.log_check import CheckReport

SERVICE_DATABASE = "windvane.db"  # in a data directory
DEFAULT_LOOP = "default"
LogPaths = Annotated[
    list[str],
    typer.Argument(metavar="LOG", help="Files, directories or patterns; .gz is read too."),
]
Format = Annotated[
    str, typer.Option(help="windvane, dsjson, vw, csv, parquet or obd; auto finds it by the bytes.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of CSV and Parquet as KEY=COLUMN, separated by commas, such as "
        "action=arm,reward=click or context=age;city. Keys: action, reward, probability, time, "
        "context, probabilities, actions, count, excluded, event_id, context_json, multiplicity, "
        "defaulted. Or JSON, if a name has a comma. May be repeated."
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
            'explorationPercentage=0.05", "MEMORY * EXPLORATION", a name that `windvane '
            "policies` lists, column=NAME or log=PATH with probabilities, or FILE.py:NAME. May "
            "be repeated. Default: logged, first, random, learner."
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            help="half-life, crossings or half-life,crossings: try several, and recommend one that "
            "is better than the reference on the last part of the log."
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The policy that others are compared with: one of --policy, or another one. "
            "Default: the default learner, or what was logged if no policy learns."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="A column or context feature: values for each of its 20 most frequent."),
    ] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(help="A column: the first is the reward, the others are metrics beside it."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="A column or context feature, such as a user, whose rows belong together."
        ),
    ] = None,
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
        Path | None, typer.Option(help="Folder for the report and the numbers as JSON.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file with tables, pictures and sentences, to pass on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate from a log what other policies would have earned."""
    from windvane.evaluation.evaluator import run_evaluation
    from windvane.evaluation.learners.candidates import add_reference, list_candidates
    from windvane.evaluation.settings import EvaluationSettings
    from windvane.evaluation.tables import format_evaluation, format_tuning, list_sentences
    from windvane.evaluation.tuning import tune as tune_learner
    from windvane.persistence import replace_file

    if tune is not None and policy:
        raise SettingError("evaluate: --tune makes its own policies: omit --policy")
    candidates, name = add_reference(list_candidates(policy or DEFAULT_POLICIES), reference)
    settings = EvaluationSettings(
        reward_model=reward_model, seed=seed, by=by or "", unit=unit or "", rewards=reward or ()
    ).check(since, until)
    mapped = [*(columns or []), json.dumps({"reward": reward[0]})] if reward else columns
    opened = open_log(log, format, mapped, strict, loop)
    result: Evaluation | LearnerTuning
    with show_progress("evaluate" if tune is None else "tune", opened):
        if tune is None:
            shown = result = run_evaluation(opened, candidates, settings, reference=name)
            text, sentences = format_evaluation(shown), [*list_sentences(shown)]
        else:
            result = tune_learner(opened, tune.split(","), settings, reference=reference)
            shown, text = result.held_out, format_tuning(result)
            sentences = [*dict.fromkeys([*result.grid.warnings, *shown.warnings])]
            if result.is_better and not as_json:
                recipe = f"such a loop: windvane loop create NAME {result.flags}"
                import_ = "with what this log teaches: windvane import LOG... --loop NAME"
                sentences = [recipe, import_, *sentences]
    if as_json:
        print_json(result.to_json())
    else:
        print(text)
    for sentence in sentences:
        print_message(sentence)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with replace_file(out / "evaluation.json") as draft:
            Path(draft).write_text(json.dumps(shown.to_json(), indent=2), "utf-8")
        write_report(shown, out / "report.html", as_json)
    if report is not None:
        write_report(result, report, as_json)


def write_report(result: "HtmlResult", path: Path, as_json: bool) -> None:
    """Write the report with the command that makes it again, without a password of a database."""
    from windvane.persistence import replace_file
    from windvane.service.json_logging import hide_passwords

    text = result.to_html(hide_passwords(shlex.join(["windvane", *sys.argv[1:]])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as draft:
        Path(draft).write_text(text, "utf-8", "replace")
    say = print_message if as_json else print
    say(f"The report is {path}")


def open_log(
    paths: list[str], format: str, columns: list[str] | None, strict: bool, loop: str | None = None
) -> "Log":
    """Open the log that the arguments of a command name: files, or the data of a service."""
    from windvane.evaluation.readers import open_log as open_files
    from windvane.evaluation.readers.column_mapping import join_columns

    [*others, path] = paths
    if not others and ("://" in path or (Path(path) / SERVICE_DATABASE).is_file()):
        from windvane.service.store.log import LogReader
        from windvane.service.store.logged_decisions import LoggedDecisions

        return LoggedDecisions(LogReader(path), loop or DEFAULT_LOOP)
    if loop is not None:
        message = "--loop: LOG must be the data directory of a service, or the URL of its database"
        raise SettingError(f"{message}, got {' '.join(paths)}")
    return open_files(paths, format, join_columns(columns), strict)


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


EVALUATION_COMMANDS: tuple[Callable[..., object], ...] = (check, evaluate)
