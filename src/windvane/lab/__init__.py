"""The lab: worlds that drift, and studies of how policies do in them.

| function      | command                | result         | frames                          |
|---------------|------------------------|----------------|---------------------------------|
| `reproduce`   | `windvane reproduce`   | `Reproduction` | `summary`, `claims`, `curves`   |
| `simulate`    | `windvane simulate`    | `Simulation`   | `summary`, `curves`             |
| `tune`        | `windvane tune`        | `Tuning`       | `table`                         |
| `leaderboard` | `windvane leaderboard` | `Leaderboard`  | `standings`, `shares`           |
| `coverage`    | `windvane coverage`    | `Coverage`     | `summary`, `intervals`          |

Each result holds its numbers as polars frames, draws a matplotlib figure with `figure()`, writes
the files of the command with `save(folder)`, and shows tables and figure in a notebook.
`load(folder)` reads a result back.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
