"""The reproduction of the paper's experiment: its figure, its numbers and its claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import polars as pl

from windvane import validation
from windvane.lab.output.panels import SUMMARY_FILE, Panel, read_json, read_panels
from windvane.lab.progress import Report, TaskProgress, open_report
from windvane.lab.running.batch import run_all
from windvane.lab.studies import criteo, paper
from windvane.lab.studies.criteo_standin import STAND_IN
from windvane.lab.studies.paper import PanelSize
from windvane.lab.studies.result import PanelResult, count_noun


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(PanelResult):
    """The result of `reproduce`.

    `summary` has one row for each policy in each panel: panel (as "10x100", d × K), policy,
    end regret, standard error (of the end regret), at the change, at 5500, at 7000 (regret after
    so many rounds) and, under the protocol "released", published (the paper's end regret).
    `claims` has one row for each claim of the paper in each panel: claim, panel, verdict
    ("holds", "does not hold" or "undecided"), difference (negative if it favours the claim), p.
    `curves` has one row for each recorded round of each replication: panel (its title), policy,
    replication, rounds, regret (cumulative).
    """

    protocol: str
    data: str  # the name of the data file, or STAND_IN
    replications: int
    seed: int
    panels: tuple[Panel, ...]
    summary: pl.DataFrame
    claims: pl.DataFrame

    picture = "figure"

    @property
    def note(self) -> str:
        """Says that the data is not Criteo's, if that is so."""
        return self.data if self.data == STAND_IN else ""

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The summary and the claims."""
        return {"summary": self.summary, "claims": self.claims}

    def describe(self) -> str:
        """Return one line that says what was played."""
        panels = count_noun(len(self.panels), "panel")
        replications = count_noun(self.replications, "replication")
        return f"protocol {self.protocol}, {panels}, {replications}, seed {self.seed}, {self.data}"

    def to_dict(self) -> dict[str, Any]:
        """Return protocol, data, replications, seed, panels (rows of `summary`) and claims."""
        return {
            "protocol": self.protocol,
            "data": self.data,
            "replications": self.replications,
            "seed": self.seed,
            "panels": self.summary.to_dicts(),
            "claims": self.claims.to_dicts(),
        }

    def __str__(self) -> str:
        played = f"Protocol: {self.protocol}. Data: {self.data}. {self.replications} replications."
        return f"{played}\n\n{super().__str__()}"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the files that `save` or `windvane reproduce` wrote."""
        summary = read_json(folder / SUMMARY_FILE)
        return cls(
            summary["protocol"],
            summary["data"],
            summary["replications"],
            summary["seed"],
            read_panels(folder, summary),
            pl.DataFrame(summary["panels"]),
            pl.DataFrame(summary["claims"]),
        )


def reproduce(
    protocol: str = "released",
    replications: int = 100,
    panels: str | Sequence[PanelSize] = "all",
    data: str | PathLike[str] | None = None,
    seed: int = 1,
    *,
    on: str = "threads",
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Reproduction:
    """Play the paper's experiment and judge its claims.

    `protocol` is "released" (the published code) or "paper" (the text). `panels` is "all", a text
    such as "10x10,50x100", or pairs (d, K). `data` is the path of the Criteo file; without it,
    stand-in data is generated. `on`, `checkpoint` and `progress` are those of `simulate`.
    """
    settings = paper.find_protocol(protocol)
    replications = validation.whole("reproduce", "replications", replications)
    sizes = paper.parse_panels(panels)
    dims = sorted({dim for dim, _ in sizes})
    with open_report(progress) as report:

        def report_bytes(done: int, total: int) -> None:
            report(TaskProgress("reading", done, total, "bytes"))

        pools = criteo.load_pools(data, dims, protocol, seed, progress=report_bytes)
        experiments = {
            paper.panel_title(size): paper.make_experiment(
                size, protocol, pools[size[0]], replications, seed
            )
            for size in sizes
        }
        results = run_all(experiments, on, report, checkpoint)
    rows = []
    claims = []
    for size, result in zip(sizes, results.values(), strict=True):
        rows += paper.summarize(size, result, settings)
        claims += [claim._asdict() for claim in paper.judge_claims(size, result, settings.change)]
    return Reproduction(
        protocol,
        pools[dims[0]].source,
        replications,
        seed,
        tuple(Panel(title, result, (settings.change,)) for title, result in results.items()),
        pl.DataFrame(rows),
        pl.DataFrame(claims),
    )
