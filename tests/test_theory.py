"""Theory: every number against its formula, worked out here a second time."""

import math

import pytest

from windvane import theory
from windvane.errors import SettingError

E, LOG, ROOT = math.e, math.log, math.sqrt


def test_corrected_discount_is_the_papers_and_thompson_has_the_factor_of_its_arms() -> None:
    assert theory.discount_for(16, 10_000, 4.0) == pytest.approx(1 - 0.5 * 2 / 100, abs=1e-15)
    plain = 1 - theory.discount_for(10, 10_000, 4.0)
    with_arms = 1 - theory.discount_for(10, 10_000, 4.0, arms=100)
    assert with_arms / plain == pytest.approx(LOG(100) ** -0.25, rel=1e-12)


@pytest.mark.parametrize(("dim", "gamma"), [(10, 0.99883), (20, 0.99927), (50, 0.99960)])
def test_uncorrected_discount_is_the_released_experiments(dim: int, gamma: float) -> None:
    given = theory.discount_for(dim, 10_000, 4.0, tuning="uncorrected")
    assert given == pytest.approx(gamma, abs=2e-5)


def test_span_rounds_up() -> None:
    assert theory.span_for(16, 10_000, 4.0) == 100
    assert theory.span_for(16, 10_001, 4.0) == 101


def test_constants_at_ten_dimensions() -> None:
    d, T, K, gamma, ridge = 10, 10_000, 100, 0.99, 2.0
    held = (1 - gamma ** (2 * (T - 1))) / (ridge * d * (1 - gamma**2))
    c1 = ROOT(2 * LOG(T) + d * LOG(1 + held)) + ROOT(ridge)
    got = theory.constants(d, T, gamma, ridge, K, "thompson")
    assert got.c1 == pytest.approx(c1, rel=1e-12)
    assert got.a == pytest.approx(ROOT(14) * c1, rel=1e-12)
    assert got.c2 == pytest.approx(ROOT(14) * c1 * ROOT(2 * LOG(K * T / 2)), rel=1e-12)
    c3 = 2 * d * LOG(1 / gamma) + 2 * d / T * LOG(1 + 1 / (d * ridge * (1 - gamma)))
    assert got.c3 == pytest.approx(c3, rel=1e-12)
    assert (got.p1, got.p2) == (1 / T, 1 / T)
    assert got.p3 == pytest.approx(E**-0.25 / (8 * ROOT(math.pi)), rel=1e-12)


def test_randomized_does_not_count_arms() -> None:
    plain = theory.constants(10, 10_000, 0.99)
    assert plain.c2 == pytest.approx(plain.a * ROOT(2 * LOG(5_000)), rel=1e-12)
    assert plain == theory.constants(10, 10_000, 0.99, arms=100)
    gamma = theory.discount_for(10, 10_000, 4.0)
    assert 25 < theory.constants(10, 10_000, gamma).a < 27


def test_regret_bound_is_the_theorem_with_the_misprint_resolved() -> None:
    d, T, B, gamma, ridge = 10, 10_000, 4.0, 0.99, 1.0
    c = theory.constants(d, T, gamma, ridge)
    D = math.ceil(LOG(T) / 0.01)
    main = (c.c1 + c.c2) * (1 + 2 / (c.p3 - 1 / T)) * T * ROOT(c.c3)
    bias = 2 * ROOT(d) * D**1.5 * B + 4 * gamma**D / 0.01 * T
    assert theory.regret_bound(d, T, B, gamma, ridge) == pytest.approx(
        main + 2 + d + bias, rel=1e-12
    )


def test_regret_bound_grows_as_its_corollary_says() -> None:
    """d^{7/8}·B^{1/4}·T^{3/4} up to logarithms; with √(c₃T) it would grow far more slowly."""
    near, far = 10**8, 10**12
    bounds = [theory.regret_bound(4, T, 2.0, theory.discount_for(4, T, 2.0)) for T in (near, far)]
    slope = LOG(bounds[1] / bounds[0]) / LOG(far / near)
    assert 0.75 <= slope < 0.85


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.discount_for(0, 100, 1.0), "dim must be a whole number >= 1, got 0"),
        (lambda: theory.discount_for(3, 100, 0.0), "drift must be above 0, got 0"),
        (lambda: theory.discount_for(1, 10, 20.0), "leaves no past to learn from"),
        (lambda: theory.discount_for(3, 100, 1.0, arms=1), "arms must be a whole number >= 2"),
        (lambda: theory.discount_for(3, 100, 1.0, tuning="best"), "tuning must be one of"),  # type: ignore[arg-type]
        (lambda: theory.constants(3, 100, 1.0), r"gamma must lie in \(0, 1\), got 1.0"),
        (lambda: theory.constants(3, 100, 0.9, exploration="thompson"), "arms must be"),
        (lambda: theory.bias_horizon(100, 0.0), r"gamma must lie in \(0, 1\)"),
        (lambda: theory.regret_bound(2, 1, 1.0, 0.9), "horizon must be at least 19"),
        (lambda: theory.regret_bound(2, 18, 1.0, 0.9), "horizon must be at least 19"),
        (
            lambda: theory.regret_bound(2, 100, 1.0, 0.9, ridge=0.5),
            r"ridge must be at least 1 for the theorem, got 0\.5",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(call: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()  # type: ignore[operator]
    assert theory.regret_bound(2, 19, 1.0, 0.9) > 0  # the shortest horizon


def test_summary_holds_every_tuning_and_constant() -> None:
    tables = theory.summary(10, 10_000, 4.0, 100)
    kinds = {(row["exploration"], row["tuning"]) for row in tables["Tunings"]}
    assert kinds == {(e, t) for e in ("randomized", "thompson") for t in theory.TUNINGS}
    assert tables["Tunings"][0]["discount"] == theory.discount_for(10, 10_000, 4.0)
    assert {"c1", "c2", "c3", "p1", "p2", "p3", "a", "regret bound"} <= set(tables["Analysis"][0])
