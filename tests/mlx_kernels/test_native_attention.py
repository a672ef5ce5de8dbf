"""Attention of the compiled kernels against a float64 softmax, one query and head at a time."""

import numpy as np
import pytest

from mlx_kernels.cpu import native
from mlx_kernels.errors import TensorError

pytestmark = [
    pytest.mark.usefixtures("path"),
    pytest.mark.skipif(
        not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
    ),
]

# positions, query heads, key heads, values of a head, cache rows, window
CASES = [
    (1, 12, 2, 128, 1000, 0),  # one position, split along the cache
    (1, 9, 3, 64, 5, 0),
    (1, 8, 2, 64, 600, 50),  # pieces that the window hides entirely
    (1, 3, 3, 20, 700, 300),
    (7, 9, 3, 64, 300, 0),
    (40, 4, 4, 24, 40, 0),  # no earlier rows: the first query sees one row
    (33, 64, 1, 80, 100, 0),  # the largest group of heads
    (9, 8, 2, 64, 600, 50),
    (70, 2, 1, 16, 200, 1),
]


def expected(queries, keys, values, window, sinks=None):
    n_new, n_heads, dim = queries.shape
    n_kv_heads, n_rows, _ = keys.shape
    result = np.empty((n_new, n_heads, dim))
    for i in range(n_new):
        stop = n_rows - n_new + i + 1
        start = max(0, stop - window) if window else 0
        for head in range(n_heads):
            kv_head = head * n_kv_heads // n_heads
            scores = keys[kv_head, start:stop].astype(float) @ queries[i, head] * dim**-0.5
            sink = -np.inf if sinks is None else float(sinks[head])
            top = max(scores.max(), sink)
            weights = np.exp(scores - top)
            total = weights.sum() + np.exp(sink - top)
            result[i, head] = weights / total @ values[kv_head, start:stop].astype(float)
    return result.reshape(n_new, n_heads * dim)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_equals_a_plain_softmax(case, dtype):
    n_new, n_heads, n_kv_heads, dim, n_rows, window = case
    rng = np.random.default_rng(3)
    queries = (3 * rng.standard_normal((n_new, n_heads, dim))).astype(np.float32)
    # a longer buffer, so that heads are further apart than their rows
    keys, values = rng.standard_normal((2, n_kv_heads, n_rows + 9, dim)).astype(dtype)
    keys, values = keys[:, :n_rows], values[:, :n_rows]
    result = native.attention(queries, keys, values, window=window)
    # float32 softmax of scores up to about 20: 20 * 2^-23, and a mean of values of size 1
    np.testing.assert_allclose(result, expected(queries, keys, values, window), atol=1e-5)


def test_rows_may_lie_position_by_position():
    rng = np.random.default_rng(4)
    queries = rng.standard_normal((2, 4, 32)).astype(np.float32)
    keys, values = rng.standard_normal((2, 50, 2, 32)).astype(np.float16)
    swapped = (keys.swapaxes(0, 1), values.swapaxes(0, 1))
    copies = [np.ascontiguousarray(rows) for rows in swapped]
    np.testing.assert_array_equal(
        native.attention(queries, *swapped), native.attention(queries, *copies)
    )


def test_large_scores_do_not_overflow():
    queries = np.full((1, 1, 16), 1e4, np.float32)
    keys = np.linspace(-1, 1, 300, dtype=np.float32)[None, :, None] * np.ones(16, np.float32)
    values = np.arange(300, dtype=np.float32)[None, :, None] * np.ones(16, np.float32)
    np.testing.assert_array_equal(native.attention(queries, keys, values), np.full((1, 16), 299.0))


@pytest.mark.parametrize("peak", range(12))
def test_softmax_starts_from_the_largest_score_wherever_it_is(peak):
    """A score 90 above the others overflows an exponential that starts from one of them."""
    keys = np.zeros((1, 12, 16), np.float32)
    keys[0, peak] = 22.5
    values = np.arange(12, dtype=np.float32)[None, :, None] * np.ones(16, np.float32)
    result = native.attention(np.ones((1, 1, 16), np.float32), keys, values)
    np.testing.assert_allclose(result, np.full((1, 16), float(peak)), atol=1e-30)


def test_shapes_are_checked_before_the_call():
    queries = np.zeros((2, 4, 16), np.float32)
    keys = np.zeros((2, 9, 16), np.float32)
    wrong = [
        (queries[0], keys, keys, "queries"),
        (queries.astype(np.float64), keys, keys, "queries"),
        (queries, keys[:, :1], keys[:, :1], "keys"),
        (queries, keys[..., :8], keys[..., :8], "keys"),
        (queries, keys.astype(np.float64), keys.astype(np.float64), "keys"),
        (queries, keys, keys.astype(np.float16), "differ"),
        (queries, keys, keys[:, :8], "differ"),
        (queries, keys[[0, 0, 0]], keys[[0, 0, 0]], "multiple"),
        (queries, keys[:, ::-1], keys[:, ::-1], "strides"),
    ]
    for q, k, v, message in wrong:
        with pytest.raises(TensorError, match=message):
            native.attention(q, k, v)


@pytest.mark.parametrize("size", [1.0, 60.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sinks_take_attention_and_give_no_value(case, size):
    n_new, n_heads, n_kv_heads, dim, n_rows, window = case
    rng = np.random.default_rng(8)
    queries = (3 * rng.standard_normal((n_new, n_heads, dim))).astype(np.float32)
    keys, values = rng.standard_normal((2, n_kv_heads, n_rows, dim)).astype(np.float16)
    sinks = (size * rng.standard_normal(n_heads)).astype(np.float32)
    result = native.attention(queries, keys, values, window=window, sinks=sinks)
    # as above; scores of up to 60 are off by 60 * 2^-24 * a few
    right = expected(queries, keys, values, window, sinks)
    np.testing.assert_allclose(result, right, atol=2e-5)
    with pytest.raises(TensorError, match="sinks"):
        native.attention(queries, keys, values, sinks=np.zeros(n_heads + 1, np.float32))
