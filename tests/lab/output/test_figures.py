"""Figures: what is drawn holds the numbers, and no two labels meet."""

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from scipy.optimize import isotonic_regression

from windvane._terminal.figures import NAMED_STYLES, assign_styles, save_figure
from windvane.lab.experiments import ExperimentResult
from windvane.lab.studies.figures import (
    INVALID_COLOUR,
    VALID_COLOUR,
    _make_ascending,
    draw_coverage,
    draw_regret,
    draw_tuning,
)
from windvane.lab.studies.result import Panel
from windvane.types import Floats

FIVE = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS", "LinTS-OR")
ENDS = (2000.0, 1870.0, 1850.0, 9950.0, 290.0)
TEN = tuple(f"policy {place}" for place in range(10))
NOTE = "stand-in data (not Criteo)"


def panel(
    names: tuple[str, ...] = FIVE,
    ends: tuple[float, ...] = ENDS,
    replications: int = 20,
    horizon: int = 10_000,
    changes: tuple[int, ...] = (4000,),
) -> Panel:
    """Curves that end near these values."""
    rng = np.random.default_rng(5)
    marks = np.linspace(0, horizon, 51)[1:].astype(np.int64)
    steps = rng.gamma(2.0, size=(len(names), replications, marks.size))
    regret = steps.cumsum(axis=2) / (2 * marks.size) * np.array(ends)[:, None, None]
    return Panel("(d, K) = (10, 10)", ExperimentResult(names, marks, regret), changes)


def drawn(axes: Axes) -> dict[str, Line2D]:
    """The curves of a panel by their names."""
    return {str(line.get_label()): line for line in axes.lines if line.get_label() in TEN + FIVE}


def ends_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def boxes(figure: Figure) -> dict[str, Floats]:
    """Where each text that is drawn stands, in pixels: (2, 2) lower left and upper right."""
    beyond = set()  # labels of ticks outside the limits, which are not drawn
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for minor in (False, True):
            ticks = zip(axis.get_ticklocs(minor=minor), axis.get_ticklabels(minor), strict=False)
            beyond |= {label for place, label in ticks if not low <= place <= high}
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    shown = [t for t in texts if t.get_visible() and t.get_text().strip() and t not in beyond]
    return {
        f"{place} {text.get_text()}": np.array(text.get_window_extent().get_points())
        for place, text in enumerate(shown)
    }


def x_of(line: Line2D) -> Floats:
    return np.asarray(line.get_xdata(), dtype=np.float64)


def y_of(line: Line2D) -> Floats:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def assert_labels_are_clear(figure: Figure) -> None:
    """No label touches another, and all are on the page."""
    texts = boxes(figure)
    for (one, a), (other, b) in combinations(texts.items(), 2):
        apart = (a[0] >= b[1]).any() or (b[0] >= a[1]).any()
        assert apart, f"{one!r} and {other!r} overlap"
    for name, box in texts.items():
        inside = (box[0] >= 0).all() and (box[1] <= figure.bbox.get_points()[1]).all()
        assert inside, f"{name!r} leaves the page"


def test_lines_hold_the_means() -> None:
    shown = panel()
    lines = drawn(draw_regret([shown]).axes[0])
    assert tuple(lines) == FIVE
    for name, curve in zip(FIVE, shown.result.regret.sum(axis=1) / 20, strict=True):
        np.testing.assert_allclose(x_of(lines[name]), shown.result.marks)
        np.testing.assert_allclose(y_of(lines[name]), curve)


def test_bands_run_from_the_tenth_to_the_ninetieth_percentile() -> None:
    shown = panel(replications=11)  # of 11 values these are the second and the tenth
    bands = [c for c in draw_regret([shown]).axes[0].collections if isinstance(c, PolyCollection)]
    ordered = np.sort(shown.result.regret, axis=1)
    assert len(bands) == len(FIVE)
    for band, low, high in zip(bands, ordered[:, 1], ordered[:, 9], strict=True):
        corners = np.asarray(band.get_paths()[0].vertices)
        for mark, least, most in zip(shown.result.marks, low, high, strict=True):
            edge = corners[corners[:, 0] == mark, 1]
            np.testing.assert_allclose([edge.min(), edge.max()], [least, most])


@pytest.mark.parametrize("changes", [(), (4000,), (1000, 2500, 9000)])
def test_every_change_has_its_line_and_all_share_one_label(changes: tuple[int, ...]) -> None:
    figure = draw_regret([panel(changes=changes), panel(changes=changes)])
    for axes in figure.axes:
        upright = [line for line in axes.lines if len(set(x_of(line))) == 1]
        assert [x_of(line)[0] for line in upright if line.get_label() != "_end"] == list(changes)
    assert legend_of(figure).count("change") == bool(changes)


def test_legend_names_every_policy_once() -> None:
    figure = draw_regret([panel(), panel(TEN, tuple(range(100, 1100, 100))), panel()])
    assert legend_of(figure) == [*FIVE, *TEN, "change"]


def test_end_values_stand_beside_their_panel() -> None:
    shown = panel()
    expected = [f"{value:,.0f}" for value in sorted(shown.result.mean()[:, -1])]
    expected[-1] = f"↑ {expected[-1]}"  # LinTS has left
    assert ends_of(draw_regret([shown]).axes[0]) == expected


def test_a_towering_curve_leaves_the_others_their_room() -> None:
    axes = draw_regret([panel()]).axes[0]
    top = axes.get_ylim()[1]
    ends = {name: y_of(line)[-1] for name, line in drawn(axes).items()}
    assert ends["LinTS"] > 3 * top
    assert 0.6 * top < ends["D-LinUCB"] < top


@pytest.mark.parametrize("ends", [(2000.0, 9950.0), (3000.0, 2000.0, 1000.0), (0.0,)])
def test_no_curve_leaves_without_need(ends: tuple[float, ...]) -> None:
    axes = draw_regret([panel(FIVE[: len(ends)], ends)]).axes[0]
    assert axes.get_ylim()[1] > max(ends) * 0.9
    assert not any("↑" in text for text in ends_of(axes))


def test_a_wide_band_does_not_count_as_towering() -> None:
    shown = panel(FIVE[:3], (2000.0, 2000.0, 2000.0))
    shown.result.regret[2] *= np.linspace(0.1, 2.9, 20)[:, None]  # mean × 1.5, upper edge × 2.6
    axes = draw_regret([shown]).axes[0]
    assert axes.get_ylim()[1] > np.percentile(shown.result.regret[2, :, -1], 90)
    assert not any("↑" in text for text in ends_of(axes))


def test_known_names_keep_their_style_and_others_differ_from_all() -> None:
    for names in (FIVE, FIVE[3:], ("mine", *FIVE[::-1], "yours"), TEN + FIVE):
        assigned = assign_styles(names)
        assert len(set(assigned.values())) == len(names)
        assert all(assigned[name] == NAMED_STYLES[name] for name in names if name in FIVE)
    many = assign_styles([f"player {place}" for place in range(40)])
    assert len(set(many.values())) == 40


def test_known_styles_differ_on_grey_paper() -> None:
    weights = np.array([0.299, 0.587, 0.114])  # of red, green, blue in grey
    greys = [weights @ colors.to_rgb(style.colour) for style in NAMED_STYLES.values()]
    assert np.diff(np.sort(greys)).min() > 0.1
    assert len({style.marker for style in NAMED_STYLES.values()}) == len(FIVE)


SHOWN = {
    "one": [panel()],
    "ten players": [panel(TEN, (1000.0,) * 10)] * 2,
    "thirty players": [panel(tuple(f"{p}" for p in range(30)), (700.0,) * 30)],
    "one replication": [panel(replications=1)],
    "two": [panel(), panel(changes=())],
    "long names": [
        panel(("discount(0.999) × optimism(1.0)", "window(1000) × thompson(1.0)"), (5, 9))
    ],
    "long rounds": [panel(horizon=50_000), panel(horizon=400_000), panel(horizon=1_000_000)],
    "small": [panel(ends=(0.02, 0.03, 0.02, 0.01, 0.0))] * 2,
    "large": [panel(ends=(2e6, 3e6, 2e6, 9e6, 1e6))] * 3,
}


@pytest.mark.parametrize("name", SHOWN)
def test_labels_of_curves_do_not_overlap(name: str) -> None:
    figure = draw_regret(SHOWN[name], NOTE)
    assert len(figure.axes) == len(SHOWN[name])
    for text in (text for axes in figure.axes for text in axes.texts):
        assert 0 <= text.get_position()[1] <= 1.001, f"{text} is not beside its panel"
    assert any(NOTE in text for text in boxes(figure))
    assert_labels_are_clear(figure)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_labels_move_as_little_as_possible(size: int) -> None:
    """Descending heights are replaced by the ascending ones of least squares, as SciPy does."""
    rng = np.random.default_rng(size)
    for heights in (rng.random(size), np.sort(rng.random(size)), np.zeros(size)):
        expected = isotonic_regression(heights).x
        np.testing.assert_allclose(_make_ascending(heights), expected, rtol=1e-14)


def test_panels_fill_the_grid_in_the_given_order() -> None:
    figure = draw_regret([panel()._replace(title=str(place)) for place in range(6)], NOTE)
    corners = [axes.get_position() for axes in figure.axes]
    order = sorted(range(6), key=lambda p: (round(-corners[p].y0, 3), corners[p].x0))
    assert order == list(range(6))
    assert len({round(corner.y0, 3) for corner in corners}) == 2
    assert_labels_are_clear(figure)


GAMMAS = 1 - 1 / np.geomspace(20, 10_000, 12)
MEANS = np.linspace(-1, 1, 12) ** 2 * 4000 + 2000
CHOICES = {"theory": 0.99883, "older (uncorrected)": 0.9985, "best": 0.99883}


def test_tuning_draws_discounts_at_their_memory() -> None:
    figure = draw_tuning(GAMMAS[::-1], MEANS, MEANS / 20, CHOICES, "γ")
    line = next(line for line in figure.axes[0].lines if x_of(line).size == 12)
    np.testing.assert_allclose(x_of(line), np.geomspace(20, 10_000, 12))
    np.testing.assert_allclose(y_of(line), MEANS[::-1])
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert "0.998\n(500)" in labels
    assert "0.9995\n(2,000)" in labels


def test_tuning_marks_stand_at_their_values() -> None:
    axes = draw_tuning(GAMMAS, MEANS, MEANS / 20, CHOICES, "γ").axes[0]
    marked = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert marked == {
        "theory: 0.99883": pytest.approx(1 / 0.00117),
        "older (uncorrected): 0.9985": pytest.approx(1 / 0.0015),
        "best: 0.99883": pytest.approx(1 / 0.00117),
    }


@pytest.mark.parametrize(
    "choices",
    [
        CHOICES,
        {"theory": 0.95, "older (uncorrected)": 0.96, "best": 0.97},
        {"theory": 0.9999, "older (uncorrected)": 0.9998, "best": 0.96},
        {"theory": 0.5, "best": 0.9},
    ],
)
@pytest.mark.parametrize("span", [(1, 12), (4, 7)])
def test_labels_of_tuning_do_not_overlap(choices: dict[str, float], span: tuple[int, int]) -> None:
    part = slice(*span)
    figure = draw_tuning(GAMMAS[part], MEANS[part], MEANS[part] / 20, choices, "γ")
    assert_labels_are_clear(figure)
    axes = figure.axes[0]
    upright = [line for line in axes.lines if len(set(x_of(line))) == 1 and x_of(line).size == 2]
    for text in axes.texts:
        (left, bottom), (right, _) = text.get_window_extent().get_points()
        for x, top in (line.get_window_extent().get_points()[1] for line in upright):
            assert not (left + 3 < x < right - 3 and top > bottom + 3), f"{text} is struck through"


def test_tuning_of_a_window_reads_in_rounds() -> None:
    windows = [50, 100, 500, 1000, 5000]
    figure = draw_tuning(windows, MEANS[:5], MEANS[:5] / 20, {"theory": 1800, "best": 500}, "w")
    texts = " ".join(boxes(figure))
    assert "theory: 1,800" in texts
    assert "memory" not in texts
    assert_labels_are_clear(figure)


def test_tuning_of_one_value_without_marks_is_drawn() -> None:
    figure = draw_tuning([0.99], [2000.0], [50.0], {}, "γ")
    assert not figure.axes[0].texts
    assert_labels_are_clear(figure)


@pytest.mark.parametrize("drifts", [1, 5])
def test_the_figure_of_coverage_holds_shares_errors_and_widths(drifts: int) -> None:
    names = [f"drift {place}" for place in range(drifts)]
    rows = [
        {
            "world": name,
            "estimator": estimator,
            "every look": share,
            "standard error": 0.02,
            "last look": 0.97,
            "width": width,
        }
        for name in names
        for estimator, share, width in (("IPS", 0.7, 0.1), ("sequence with model", 0.92, 0.3))
    ]
    figure = draw_coverage(pl.DataFrame(rows), 0.05)
    assert [axes.get_title(loc="left") for axes in figure.axes[:drifts]] == names
    for shares, widths in zip(figure.axes[:drifts], figure.axes[drifts:], strict=True):
        promise, error, every, last = shares.lines[:4]
        assert x_of(promise).tolist() == [0.95, 0.95]
        assert x_of(error) == pytest.approx([0.66, 0.74])
        assert [x_of(every).item(), x_of(last).item()] == [0.7, 0.97]
        assert shares.lines[1].get_color() == INVALID_COLOUR
        assert shares.lines[4].get_color() == VALID_COLOUR  # 0.92 + 2 · 0.02 > 0.95
        bars = [bar for bar in widths.patches if isinstance(bar, Rectangle)]
        assert [bar.get_width() for bar in bars] == [0.1, 0.3]
    texts = [*boxes(figure).values()]
    assert all((a[0] >= b[1]).any() or (b[0] >= a[1]).any() for a, b in combinations(texts, 2))


def test_saved_files_are_the_same_to_the_byte_when_drawn_again(tmp_path: Path) -> None:
    first = save_figure(draw_regret([panel()], NOTE), tmp_path / "new" / "a", "figure")
    figure = draw_regret([panel()], NOTE)
    save_figure(figure, tmp_path / "b", "figure")
    again = save_figure(figure, tmp_path / "b", "figure")  # over the file that is there
    assert [path.name for path in first] == ["figure.png", "figure.pdf", "figure.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in first[1].read_bytes()
    assert {path.name for path in (tmp_path / "b").iterdir()} == {path.name for path in first}


def test_a_failed_save_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "figure.png").write_bytes(b"old")

    def fail(draft: Path, **_: object) -> None:
        draft.write_bytes(b"half")
        raise OSError("disk full")

    figure = Figure()
    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, tmp_path, "figure")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_reproduction_does_without_the_packages_of_scipy_that_are_slow_to_import() -> None:
    code = (
        "import sys, windvane.lab.studies.reproduction, windvane.lab.studies.figures;"
        "assert not {'scipy.optimize', 'scipy.sparse', 'scipy.stats'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
