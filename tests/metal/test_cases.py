"""What is said of a case: nothing of a right one, and what is wrong with each wrong one."""

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from mlx_kernels.gpu.metal_cases import Case, Comparison, Run, Traffic, worst_share  # noqa: E402
from tests.metal.cases import differs_by_order, findings, run_case  # noqa: E402
from tests.metal.launch import KernelFault  # noqa: E402

SCALE_ROWS = """
// One simdgroup a row: y = x * factor of the row.
uint r = threadgroup_position_in_grid.x;
uint lane = thread_index_in_simdgroup;
if (r < uint(sizes[0])) {
  for (uint c = lane; c < 64u; c += 32u) {
    y[r * 64u + c] = x[r * 64u + c] * factors[r];
  }
}
"""


def case(
    source: str = SCALE_ROWS,
    bound: float = 1e-6,
    least: dict[str, int] | None = None,
    cached: tuple[str, ...] = ("sizes", "factors"),
    grid: int = 3 * 32,
    wrong: float = 0.0,
    flat: bool = False,
) -> Case:
    def run(make: object, random: np.random.Generator) -> Run:
        kernel = make(
            name="scale_rows",
            input_names=["x", "factors", "sizes"],
            output_names=["y"],
            source=source,
        )
        x = random.standard_normal((3, 64)).astype(np.float32)
        factors = np.float32([1, 2, 3])
        expected = x.astype(np.float64) * factors[:, None]
        (y,) = kernel(
            inputs=[mx.array(x), mx.array(factors), mx.array([3], mx.int32)],
            grid=(grid, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(3, 64)],
            output_dtypes=[mx.float32],
        )
        bytes_ = {"x": x.nbytes, "y": x.nbytes} if least is None else least
        expected = np.zeros((3, 64)) if flat else expected + wrong
        return Run([Comparison(y, expected, bound)], {"scale_rows": Traffic(bytes_, cached)})

    return Case("scale rows", run)


@pytest.mark.parametrize("build", ["fast", "checked"])
def test_nothing_is_found_in_a_right_case(build: str) -> None:
    assert findings(case(), build) == []
    assert differs_by_order(run_case(case(), build)[1]) == []


NEVER = SCALE_ROWS.replace("c < 64u", "c < 32u")
TWICE = SCALE_ROWS.replace("x[r * 64u + c] *", "0.5f * (x[r * 64u + c] + x[r * 64u + c % 64u]) *")
OTHER_ROW = SCALE_ROWS.replace(
    "x[r * 64u + c] *", "(x[r * 64u + c] + 0.0f * x[(r + 1u) % 3u * 64u + lane]) *"
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (case(wrong=1e-3), "times the allowed difference"),
        (case(flat=True), "one value everywhere"),
        (case(source=NEVER), "384 bytes of y never written"),
        (case(source=OTHER_ROW), "x moves 1.500 of its 768 bytes"),
        (case(cached=("sizes",)), "factors moves 12 bytes and is not accounted for"),
        (case(least={"y": 768}), "x moves 768 bytes and is not accounted for"),
        (case(least={"x": 768, "y": 100}), "y moves 7.680 of its 100 bytes"),
        (case(least={"x": 7680, "y": 768}), "x moves 0.100 of its 7680 bytes"),
        (case(grid=100), "not whole simdgroups"),
        (Case("empty", lambda make, random: Run([])), "launches or compares nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_finding(wrong: Case, words: str) -> None:
    assert any(words in text for text in findings(wrong, "checked")), findings(wrong, "checked")


def test_read_again_by_the_same_simdgroup_is_not_fetched_again() -> None:
    assert findings(case(source=TWICE, bound=1e-5), "checked") == []


def test_fault_and_dependence_on_order() -> None:
    with pytest.raises(KernelFault, match="out of bounds"):
        findings(case(source=SCALE_ROWS.replace("factors[r]", "factors[r + 1u]")), "checked")
    race = "y[0] = float(thread_position_in_grid.x) + x[0] + factors[0] + float(sizes[0]);"
    assert any("other bits" in text for text in differs_by_order(run_case(case(race))[1]))


def test_share_of_the_bound() -> None:
    values = mx.array([1.0, 2.0, float("inf")])
    assert worst_share(Comparison(values, np.array([1.0, 2.0, np.inf]), 0.0)) == 0
    assert worst_share(Comparison(values, np.array([1.0, 2.5, np.inf]), 0.25)) == 2
    bounds = np.array([0.0, 1.0, 0.0])
    assert worst_share(Comparison(values, np.array([1.0, 2.5, np.inf]), bounds)) == 0.5
    assert worst_share(Comparison(values, np.array([np.nan, 2.0, 0.0]), 1.0)) == np.inf
    assert worst_share(Comparison(values, np.array([1.0, 2.0]), 1.0)) == np.inf
    assert worst_share(Comparison(mx.array([3, 4]), np.array([3, 5]), 0)) == np.inf
    nan = Comparison(mx.array([float("nan")]), np.array([1.0]), 1.0)
    assert worst_share(nan) == np.inf
