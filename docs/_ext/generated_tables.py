"""Directives for the parts of the reference that are made from the code when the site is built.

Each directive has no content of its own: a function of this file writes its Markdown.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command
from typer.testing import CliRunner

from windvane import errors
from windvane.cli import app as command_line

PAGES = {  # endpoints that the OpenAPI document leaves out
    "/": "The dashboard",
    "/loops/{name}": "The dashboard of one loop",
    "/openapi.json": "This API as an OpenAPI document",
}


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


def write_serve_variables() -> str:
    """Every flag of `windvane serve` with its environment variable."""
    serve = get_command(command_line).commands["serve"]  # type: ignore[attr-defined]
    rows = []
    for parameter in serve.params:
        if parameter.name == "help":
            continue
        described = _describe_parameter(parameter)
        rows.append(
            {
                "flag": described[""],
                "variable": f"`{parameter.envvar}`",
                "default": described["default"],
                "meaning": parameter.help,
            }
        )
    return format_table(rows)


def write_error_tree() -> str:
    """The tree at the top of `windvane.errors`."""
    tree = [line for line in (errors.__doc__ or "").splitlines() if line[:1] in ("W", "├", "└")]
    return "```text\n{}\n```".format("\n".join(tree))


def write_metrics() -> str:
    """Every metric with its kind, its labels and its meaning."""
    from windvane.service.monitoring.metrics import list_metrics

    rows = [
        {
            "metric": f"`{metric.name}`",
            "kind": metric.kind,
            "labels": ", ".join(f"`{label}`" for label in metric.labels),
            "meaning": metric.meaning,
        }
        for metric in list_metrics()
    ]
    return format_table(rows)


def write_memory_table() -> str:
    """The registry of memories: how each fades, and what each can do."""
    from windvane import memory

    capabilities = [
        {
            "memory": f"`{kind.name}`",
            "beliefs can be merged": _check_mark(kind.mergeable),
            "rewards can be amended": _check_mark(kind.amendable),
            "works with a link": _check_mark(kind.works_with_link),
            "can be found while playing": _check_mark(bool(kind.sized_by)),
        }
        for kind in memory.MEMORIES.values()
    ]
    return f"{read_table(memory)}\n\n{format_table(capabilities)}"


def write_exploration_table() -> str:
    """The registry of explorations: what each plays, and what each can do."""
    from windvane import exploration

    capabilities = [
        {
            "exploration": f"`{kind.name}`",
            "deterministic": _check_mark(kind.deterministic),
            "works with action sets": _check_mark(kind.by_oracle),
        }
        for kind in exploration.EXPLORATIONS.values()
    ]
    return f"{read_table(exploration)}\n\n{format_table(capabilities)}"


def read_table(module: ModuleType) -> str:
    """The table in the docstring of a module."""
    return "\n".join(line for line in (module.__doc__ or "").splitlines() if line[:1] == "|")


def _check_mark(is_true: bool) -> str:
    return "yes" if is_true else ""


def escape_stars(text: str) -> str:
    """Keep asterisks from marking emphasis."""
    return text.replace("*", "\\*")


def write_loop_settings() -> str:
    """Every setting of a loop, from the fields that define them."""
    from windvane.service.loops.settings import document_settings

    return format_table(
        [
            {
                "setting": f"`{row['name']}`",
                "default": f"`{row['default']}`",
                "meaning": (
                    f"{escape_stars(row['meaning'])} Values: {row['type']}. Flag: `{row['flag']}`."
                ),
            }
            for row in document_settings()
        ]
    )


def write_routes() -> str:
    """Every endpoint of the service, from the route table."""
    from windvane.service.api.routes import LOOP_ENDPOINTS, SERVICE_ENDPOINTS

    return "\n\n".join(
        (
            "## Paths of a loop",
            "Each of these paths follows a prefix. `/personalizer/v1.0` is the loop `default`, "
            "`/loops/NAME/personalizer/v1.0` is the loop `NAME`.",
            format_table([_describe_endpoint(endpoint) for endpoint in LOOP_ENDPOINTS]),
            "## Paths of the service",
            format_table([_describe_endpoint(endpoint) for endpoint in SERVICE_ENDPOINTS]),
        )
    )


def _describe_endpoint(endpoint: Any) -> dict[str, object]:
    meaning = endpoint.summary
    if endpoint.refusal:
        meaning = f"Answered with 403: {endpoint.refusal}"
    elif not meaning:
        sentence = (endpoint.handler.__doc__ or "").split("\n")[0].rpartition(": ")[2]
        meaning = PAGES.get(endpoint.path, sentence) or "Answered with 403"
    return {
        "method": endpoint.method,
        "path": f"`{endpoint.path.replace(':path', '')}`",
        "role": endpoint.role or "none",
        "success": endpoint.status if endpoint.summary and not endpoint.refusal else "",
        "meaning": meaning.removesuffix("."),
    }


WRITERS: dict[str, Callable[[], str]] = {
    "memory-table": write_memory_table,
    "exploration-table": write_exploration_table,
    "named-policies": write_named_policies,
    "commands": write_commands,
    "serve-variables": write_serve_variables,
    "error-tree": write_error_tree,
    "loop-settings": write_loop_settings,
    "service-metrics": write_metrics,
    "routes": write_routes,
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
