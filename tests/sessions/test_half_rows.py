"""Rows between float16 and float32: the fast way beside the plain cast, bit by bit."""

import numpy as np
import pytest

from sessions.half_rows import Narrower, narrow, widen

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


@pytest.mark.parametrize("rows", [FINITE, ALL, FINITE[:0], FINITE[:1000].reshape(10, 100)])
def test_every_float16_is_widened_exactly(rows) -> None:
    out = np.empty(rows.shape, np.float32)
    widen(rows, out)
    assert out.tobytes() == rows.astype(np.float32).tobytes()


@pytest.mark.parametrize("rows", [FINITE, FINITE[:0], FINITE[:1000].reshape(10, 100)])
def test_every_finite_float16_comes_back_with_its_bits(rows) -> None:
    out = np.empty(rows.shape, np.float16)
    assert narrow(rows.astype(np.float32), out) == (True, True)
    assert out.tobytes() == rows.tobytes()


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 65520.0, -1e30])
def test_what_a_float16_cannot_hold_is_told(odd) -> None:
    values = np.ones(64, np.float32)
    values[17] = odd
    out = np.empty(64, np.float16)
    assert narrow(values, out) == (False, not np.isfinite(odd))
    assert out[16] == 1


@pytest.mark.parametrize("magnitude", [1e-9, 1e-7, 1e-5, 1.0, 65503.0, 65519.9])
def test_other_values_are_rounded_to_the_nearest(magnitude) -> None:
    random = np.random.default_rng(1)
    values = (random.uniform(-1, 1, 5000) * magnitude).astype(np.float32)
    out = np.empty(5000, np.float16)
    assert narrow(values, out) == (True, False)
    assert out.tobytes() == values.astype(np.float16).tobytes()


def test_memory_can_be_used_again_once_the_pieces_behind_it_are_settled() -> None:
    random, narrower = np.random.default_rng(2), Narrower()
    buffers = [np.empty(1 << 18, np.float32) for _ in range(4)]
    wanted, found = [], []
    for n in range(200):  # large and small ones in turn
        rows = random.standard_normal(1 << (18 if n % 3 == 0 else 6)).astype(np.float16)
        narrower.settle(3)
        values = buffers[n % 4][: rows.size]
        values[:] = rows
        out = np.empty(rows.shape, np.float16)
        narrower.submit(str(n), values, out)
        wanted.append(rows)
        found.append(out)
    narrower.close()
    assert narrower.bad == []
    assert all(a.tobytes() == b.tobytes() for a, b in zip(wanted, found, strict=True))
    narrower.submit("x", np.full(1 << 18, np.inf, np.float32), np.empty(1 << 18, np.float16))
    narrower.close()
    assert narrower.bad == ["x"]
