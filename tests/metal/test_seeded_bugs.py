"""One bug of each kind, put into a correct kernel, is found, by the build that should find it.

"numbers" is a fault at a guard page, a divergence or a wrong result of the fast build.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.metal import compiler
from tests.metal.launch import MetalKernel, Report
from tests.metal.sample_kernels import (
    MATMUL,
    Q8_0_MATVEC,
    RMS_NORM,
    dequantize_q8_0,
    quantize_q8_0,
)

_RANDOM = np.random.default_rng(5)


@dataclass(frozen=True)
class Case:
    """A kernel, a launch of it and the right answer."""

    make: Callable[[str], MetalKernel]
    source: str
    launch: dict
    wanted: np.ndarray
    tolerance: float

    def run(self, source: str, build: str, order: str = "ascending") -> tuple[str | None, Report]:
        """What is wrong with this source, or None; and the report."""
        (y,), report = self.make(source).run(build=build, order=order, **self.launch)
        if report.error:
            return report.error, report
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(y.astype(np.float64) - self.wanted) <= self.tolerance)
        return (f"{wrong.sum()} wrong values" if wrong.any() else None), report


def _q8_0() -> Case:
    raw = quantize_q8_0(_RANDOM.standard_normal((6, 1024)))
    x = _RANDOM.standard_normal(1024).astype(np.float32)
    return Case(
        lambda source: MetalKernel("q8_0", ["w", "x", "sizes"], ["y"], source),
        Q8_0_MATVEC,
        dict(
            inputs=[raw, x, np.array([6, 1024], np.int32)],
            grid=(256, 1, 1),
            threadgroup=(128, 1, 1),
            output_shapes=[(6,)],
            output_dtypes=[np.float32],
        ),
        dequantize_q8_0(raw) @ x.astype(np.float64),
        1e-3,
    )


def _rms() -> Case:
    x = _RANDOM.standard_normal((2, 128)).astype(np.float32)
    weight = _RANDOM.standard_normal(128).astype(np.float32)
    return Case(
        lambda source: MetalKernel("rms", ["x", "weight", "eps"], ["y"], source),
        RMS_NORM,
        dict(
            inputs=[x, weight, np.array([1e-5], np.float32)],
            template=[("T", "float32"), ("N", 128)],
            grid=(128, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(2, 128)],
            output_dtypes=[np.float32],
        ),
        x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * weight,
        1e-5,
    )


def _matmul() -> Case:
    a = _RANDOM.standard_normal((32, 64)).astype(np.float16)
    b = _RANDOM.standard_normal((64, 32)).astype(np.float16)
    return Case(
        lambda source: MetalKernel("matmul", ["a", "b", "sizes"], ["y"], source),
        MATMUL,
        dict(
            inputs=[a, b, np.array([32, 32, 64], np.int32)],
            grid=(128, 1, 1),
            threadgroup=(128, 1, 1),
            output_shapes=[(32, 32)],
            output_dtypes=[np.float32],
        ),
        a.astype(np.float64) @ b.astype(np.float64),
        1e-3,
    )


CASES = {"q8_0": _q8_0(), "rms": _rms(), "matmul": _matmul()}
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"

# Kernel, text, its replacement (which occurrence), words of the fast and the checked build's
# finding; None: not seen by this build.
BUGS = {
    "block loop one too far": (
        *("q8_0", "b < n_blocks", "b <= n_blocks", 0),
        *("", "out of bounds: x+4096"),
    ),
    "row guard missing": ("q8_0", "row < uint(sizes[0])", "true", 0, "out of bounds", "bounds: w+"),
    "one lane skips simd_sum": (
        *("q8_0", "sum = simd_sum(sum);", "if (lane != 31u) { sum = simd_sum(sum); }", 0),
        *("divergence: thread 0 waits in simd_sum", "divergence"),
    ),
    "return before simd_sum": (
        *("q8_0", "sum = simd_sum(sum);", "if (lane == 31u) { return; } sum = simd_sum(sum);", 0),
        *("thread 31 has returned", "thread 31 has returned"),
    ),
    "every lane stores": ("q8_0", "lane == 0u", "true", 0, None, "race, write after write: y"),
    "simd_sum left out": ("q8_0", "sum = simd_sum(sum);", "", 0, "wrong", "wrong"),
    "shuffle past the end": (
        *("q8_0", "sum = simd_sum(sum);", "sum += simd_shuffle_down(sum, ushort(32));", 0),
        *("wrong", "wrong"),
    ),
    "shuffle from no lane": (
        *("q8_0", "sum = simd_sum(sum);", "sum += simd_shuffle(sum, ushort(lane + 1u));", 0),
        *("simd_shuffle from a lane past 31", "simd_shuffle from a lane past 31"),
    ),
    "last row not written": (
        *("q8_0", "row < uint(sizes[0])", "row < uint(sizes[0]) - 1u", 0),
        *("wrong", "wrong"),
    ),
    "write to an input": (
        *("q8_0", "y[row] = sum;", "y[row] = sum; const_cast<float*>(&x[0])[row] = 1.0f;", 0),
        *("write to an input: x", "write to input: x"),
    ),
    "misaligned vector load": (
        *("q8_0", "float part = 0.0f;", "float part = (*(const device float4*)(block + 2)).x;", 0),
        *("", "misaligned"),
    ),
    "shift too far": ("q8_0", "<< 8u", "<< 40u", 0, "wrong", "shift too far, body.metal:14"),
    "tile: barrier missing": ("rms", BARRIER, "", 0, "wrong", "partial"),
    "tile: barrier without flag": (
        *("rms", BARRIER, "threadgroup_barrier(mem_flags::mem_none);", 0),
        *(None, "race, read after write: partial"),
    ),
    "tile: barrier in a divergent if": (
        *("rms", BARRIER, "if (thread_id < 40u) { " + BARRIER + " }", 0),
        *("divergence", "race, read after write: partial"),
    ),
    "tile: one element too few written": (
        *("rms", "s < n_threads / 32u", "s <= n_threads / 32u", 0),
        *("wrong", "uninitialised read: partial+8"),
    ),
    "matmul: first barrier missing": ("matmul", BARRIER, "", 0, "wrong", "tile_"),
    "matmul: second barrier missing": (
        *("matmul", BARRIER, "", 1),
        *("wrong", "race, write after read: tile_"),
    ),
    "matmul: row stride of B": (
        *("matmul", "tile_b[r * 40u", "tile_b[r * 39u", 0),
        *("wrong", "tile_b"),
    ),
    "matmul: tile too short": (
        *("matmul", "tile_b[32 * 40]", "tile_b[32 * 40 - 9]", 0),
        *(None, "out of bounds, body.metal:25"),
    ),
    "matmul: pointer differs between lanes": (
        *("matmul", "tile_a + (sub", "tile_a + (thread_id % 2u) + (sub", 0),
        *("wrong", "pointer differs between lanes, line 31"),
    ),
    "matmul: K loop one step too far": (
        *("matmul", "k0 < k;", "k0 <= k;", 0),
        *("out of bounds", "out of bounds: "),
    ),
}


def mutate(source: str, old: str, new: str, occurrence: int) -> str:
    """Replace one occurrence."""
    parts = source.split(old)
    assert len(parts) > occurrence + 1, f"{old!r} is not in the kernel"
    return old.join(parts[: occurrence + 1]) + new + old.join(parts[occurrence + 1 :])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("build", compiler.BUILDS)
def test_nothing_is_found_in_the_correct_kernels(name: str, build: str) -> None:
    try:
        compiler.compiler(build)
    except compiler.MissingCompiler as missing:
        pytest.skip(str(missing))
    finding, report = CASES[name].run(CASES[name].source, build)
    assert finding is None
    if build == "checked":
        assert report.traffic["y"].unwritten == 0


@pytest.mark.parametrize("name", BUGS)
def test_seeded_bug_is_found(name: str) -> None:
    kernel, old, new, occurrence, in_fast, in_checked = BUGS[name]
    case = CASES[kernel]
    source = mutate(case.source, old, new, occurrence)
    findings = [case.run(source, "fast", order)[0] for order in ("ascending", "descending")]
    if in_fast is None:
        assert findings == [None, None]
    else:
        assert any(f is not None and in_fast in f for f in findings), findings
    finding, _ = case.run(source, "checked")
    assert finding is not None and in_checked in finding, finding


def test_missing_row_is_counted_as_unwritten_bytes() -> None:
    source = mutate(Q8_0_MATVEC, "row < uint(sizes[0])", "row < uint(sizes[0]) - 1u", 0)
    _, report = CASES["q8_0"].run(source, "checked")
    assert report.traffic["y"].unwritten == 4


def test_endless_loop_and_dead_process_are_findings() -> None:
    kernel = MetalKernel("q8_0", ["x"], ["y"], "", timeout_s=3)
    launch = dict(
        inputs=[np.zeros(32, np.float32)],
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(32,)],
        output_dtypes=[np.float32],
    )
    kernel.source = "while (true) { threadgroup_barrier(mem_flags::mem_none); }"
    _, report = kernel.run(**launch)
    assert report.error == "did not end within 3 s"
    kernel.source = "__builtin_abort();"
    _, report = kernel.run(**launch)
    assert "ended with status -6" in report.error
    kernel.source = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x];"
    assert (kernel(**launch)[0] == 0).all()


@pytest.mark.skipif(
    "clang" not in compiler.available_builds(), reason="needs clang 16 or newer for its bounds"
)
def test_index_of_a_private_array_is_found_by_clang() -> None:
    """g++ does not see the inner index of an array of matrices; clang does, or -O0 shows it."""
    source = mutate(MATMUL, "j < 2u", "j < 3u", 0)
    assert CASES["matmul"].run(source, "checked")[0] is None
    assert CASES["matmul"].run(source, "clang")[0] is not None
    table = "float t[4]; for (uint i = 0u; i < row + 5u; i++) { t[i] = 1.0f; } sum *= t[0];"
    source = mutate(Q8_0_MATVEC, "sum = simd_sum(sum);", table + "sum = simd_sum(sum);", 0)
    assert "undefined: bounds" in CASES["q8_0"].run(source, "clang")[0]
