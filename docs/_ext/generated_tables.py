"""Directives for the parts of the reference that are made from the code when the site is built.

Each directive has no content of its own: a function of this file writes its Markdown.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command
from typer.testing import CliRunner

from windvane import errors
from windvane.cli import app as command_line


def format_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as a Markdown table, with their keys as its heading."""
    heading = list(rows[0])
    body = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
    lines = [heading, ["---"] * len(heading), *body]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def write_named_policies() -> str:
    """The table of `windvane policies`."""
    result = CliRunner().invoke(command_line, ["policies", "--json"])
    yes_or_no = {True: "yes", False: ""}
    parts = []
    for world, rows in json.loads(result.stdout).items():
        shown = [
            {key: yes_or_no[cell] if isinstance(cell, bool) else cell for key, cell in row.items()}
            for row in rows
        ]
        parts.append(f"## {world}\n\n{format_table(shown)}")
    return "\n\n".join(parts)


def write_commands() -> str:
    """Every command with its arguments and options."""
    return "\n\n".join(_write_command("windvane", get_command(command_line)))


def _write_command(path: str, command: Any) -> Iterator[str]:
    if subcommands := getattr(command, "commands", None):
        for name, subcommand in subcommands.items():
            yield from _write_command(f"{path} {name}", subcommand)
        return
    yield f"## {path}"
    yield command.help
    parameters = [p for p in command.params if p.name != "help"]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    usage = " ".join([path, *(_name_argument(p) for p in arguments), "[OPTIONS]"])
    yield f"```text\n{usage}\n```"
    if parameters:
        yield format_table([_describe_parameter(parameter) for parameter in parameters])


def _name_argument(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper()


def _describe_parameter(parameter: Any) -> dict[str, object]:
    is_option = parameter.param_type_name == "option"
    name = ", ".join(parameter.opts) if is_option else _name_argument(parameter)
    default = "" if parameter.default in (None, "", False) else f"`{parameter.default}`"
    if parameter.required:
        default = "required"
    variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    return {"": f"`{name}`", "default": default, "meaning": f"{parameter.help or ''}{variable}"}


def write_error_tree() -> str:
    """The tree at the top of `windvane.errors`."""
    tree = [line for line in (errors.__doc__ or "").splitlines() if line[:1] in ("W", "├", "└")]
    return "```text\n{}\n```".format("\n".join(tree))


def write_metrics() -> str:
    """Every metric with its kind and its help text, as /metrics has it without any loop."""
    from windvane.service.monitoring.metrics import Metrics

    writer = SimpleNamespace(waiting=0, commits=0)
    service: Any = SimpleNamespace(degraded=None, writer=writer, loops={})
    rows = []
    for metric in Metrics(service).registry.collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        rows.append({"metric": f"`{name}`", "kind": metric.type, "meaning": metric.documentation})
    return format_table(rows)


WRITERS: dict[str, Callable[[], str]] = {
    "named-policies": write_named_policies,
    "commands": write_commands,
    "error-tree": write_error_tree,
    "service-metrics": write_metrics,
}


class GeneratedMarkdown(SphinxDirective):
    """A directive whose content is the Markdown of its writer."""

    def run(self) -> list[nodes.Node]:
        """The nodes of the Markdown."""
        return self.parse_text_to_nodes(WRITERS[self.name](), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register one directive for each writer."""
    for name in WRITERS:
        app.add_directive(name, GeneratedMarkdown)
    return {"parallel_read_safe": True}
