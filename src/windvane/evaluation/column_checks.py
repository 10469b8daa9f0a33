"""What must hold for the columns that a record adds: the same length, finite numbers, a range."""

from collections.abc import Mapping

import numpy as np

from windvane.errors import RewardError, SettingError
from windvane.evaluation.confidence_sequence import RewardRange
from windvane.types import Floats


def check_columns(who: str, columns: Mapping[str, Floats | None]) -> None:
    """Refuse columns of different lengths, and numbers that are not finite."""
    shapes = [column.shape for column in columns.values() if column is not None]
    for name, column in columns.items():
        if column is None:
            continue
        if column.shape != shapes[0] or column.ndim != 1:
            raise SettingError(f"{who}: {name} must have shape {shapes[0]}, got {column.shape}")
        is_finite = np.isfinite(column)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise RewardError(f"{who}: {name} must be finite, got {column[row]} in row {row}")


def check_weights(who: str, weights: Floats) -> None:
    """Refuse a weight below 0."""
    row = int(np.argmin(weights))
    if weights[row] < 0:
        raise SettingError(f"{who}: weights must be at least 0, got {weights[row]} in row {row}")


def check_rewards(who: str, rewards: Floats, allowed: RewardRange) -> None:
    """Refuse a reward outside a range that was given."""
    is_outside = (rewards < allowed.low) | (rewards > allowed.high)
    if is_outside.any():
        row = int(np.argmax(is_outside))
        raise RewardError(
            f"{who}: rewards must lie in [{allowed.low:g}, {allowed.high:g}], "
            f"got {rewards[row]:g} in row {row}"
        )


def multiply_coefficients(
    who: str, counts: Floats | None, coefficients: Floats | None
) -> Floats | None:
    """The product of counts and coefficients, which must be above 0; None if all are 1."""
    if counts is None or coefficients is None:
        product = coefficients if counts is None else counts
    else:
        product = counts * coefficients
    if product is not None and product.size and product.min() <= 0:
        row = int(np.argmin(product))
        raise SettingError(
            f"{who}: counts and coefficients must be above 0, got {product[row]} in row {row}"
        )
    return None if product is None or (product == 1).all() else product
