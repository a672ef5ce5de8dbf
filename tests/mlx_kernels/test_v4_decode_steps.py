"""Kept graphs of a decoded position give what graphs made anew give.

The kernels are stand-ins that any device of MLX evaluates: each output is a mixture of all inputs,
so an input that a kept graph took from another position, another layer or another state shows.
That the real kernels are right is shown elsewhere, without kept graphs: there they compute at once.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

import mlx.core as mx  # noqa: E402

from ds4agent.bench import synthetic  # noqa: E402
from mlx_kernels.gpu.metal_kernels import MetalKernels  # noqa: E402
from mlx_kernels.gpu.random_ops import RandomOps  # noqa: E402
from tests.test_bench_synthetic import SMALL  # noqa: E402

ROOT = Path(__file__).parents[2]
N_LAYERS = 5
NUMBERS = SMALL | {"attention.indexer.head_count": 8, "attention.output_lora_rank": 128}
MIXTURE = mx.array(np.random.default_rng(5).standard_normal((32, 8)).astype(np.float32))


def make(**names: Any) -> Any:
    """A kernel whose output j is full of one number, of which every input has a share."""

    def call(
        *, inputs: list[Any], output_shapes: Any, output_dtypes: Any, **settings: Any
    ) -> list[Any]:
        assert len(inputs) == len(names["input_names"])
        shares = mx.stack([mx.mean(x.astype(mx.float32)) for x in inputs])[None]
        mixed = mx.sin(shares @ MIXTURE[: len(inputs)])
        return [
            mx.contiguous(mx.broadcast_to(mixed[0, j].astype(dtype), shape))
            for j, (shape, dtype) in enumerate(zip(output_shapes, output_dtypes, strict=True))
        ]

    return call


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    for key, value in NUMBERS.items():
        monkeypatch.setitem(synthetic._FLASH, key, value)
    mx.random.seed(7)
    ops = RandomOps("mlx-cpu", MetalKernels(make))
    monkeypatch.setattr(synthetic, "open_random_ops", lambda device: (ops, True))
    return synthetic.SyntheticEngine.open("v4-flash-q2", "metal", 300, N_LAYERS)._model


def decoded(
    model: Any, first: int, n: int, is_kept: bool, begins: bool = True
) -> list[dict[str, np.ndarray]]:
    """The streams and the state after each of ``n`` positions from a made-up state on.

    ``begins``: without graphs that were kept before.
    """
    decoder = model._v4._decoder
    decoder._kernels.are_lazy = is_kept
    if begins:
        decoder._layers = {}
    cache, random = model.new_cache(300), np.random.default_rng(first)
    cache.load(
        {
            f"layers.{i}.{name}": random.standard_normal(shape).astype(dtype)
            for i, state in cache.states.items()
            for name, (shape, dtype) in state.expected(first).items()
        },
        first,
    )
    found = []
    for at in range(n):
        ids = np.array([at % 7], np.int32)
        streams = model.layers(0, N_LAYERS, model.embed(ids), cache, ids)
        found.append({"streams": np.array(streams), **cache.arrays()})
    return found


@pytest.mark.parametrize(
    ("first", "n"),
    [
        (0, 6),  # no rows, then the first row of four
        (14, 12),  # from all rows to chosen ones
        (124, 10),  # the first row of 128, the buffers grow
    ],
)
def test_kept_graphs_give_the_same_bits(model, first, n):
    anew = decoded(model, first, n, False)
    kept = decoded(model, first, n, True)
    # Positions differ, but for two whose few numbers round to the same ones.
    assert len({each["streams"].tobytes() for each in anew}) >= n - 1
    for at, (theirs, ours) in enumerate(zip(anew, kept, strict=True)):
        assert theirs.keys() == ours.keys()
        for name, array in theirs.items():
            np.testing.assert_array_equal(ours[name], array, err_msg=f"{name} after {at}")


IN_A_THREAD = """
import threading
from ds4agent.bench import synthetic
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.random_ops import RandomOps
from tests.mlx_kernels import test_v4_decode_steps as there

def work():
    there.decoded(engine._model, 1, 4, True)
    engine.close()
    print("closed")

# Not in the thread: MLX's random numbers have the same fault.
ops = RandomOps("mlx-cpu", MetalKernels(there.make))
synthetic._FLASH.update(there.NUMBERS)
synthetic.open_random_ops = lambda device: (ops, True)
engine = synthetic.SyntheticEngine.open("v4-flash-q2", "metal", 300, there.N_LAYERS)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_a_process_ends_well_after_a_thread_that_kept_graphs():
    """MLX frees what a thread kept when it ends: see ``Decoder.close``."""
    run = [sys.executable, "-c", IN_A_THREAD]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert (done.stdout, done.returncode) == ("closed\n", 0), done.stderr


def test_graphs_are_made_once_and_serve_another_conversation(model, monkeypatch):
    traced = []
    compile_ = mx.compile

    def counted(function: Any) -> Any:
        def told(*arrays: Any) -> Any:
            traced.append(function.__name__)
            return function(*arrays)

        return compile_(told)

    monkeypatch.setattr(mx, "compile", counted)
    anew = decoded(model, 133, 2, False)
    decoded(model, 137, 2, True)
    n = len(traced)
    assert n == 2 * N_LAYERS  # attention and experts of each
    kept = decoded(model, 133, 2, True, begins=False)
    assert len(traced) == n
    for theirs, ours in zip(anew, kept, strict=True):
        np.testing.assert_array_equal(ours["streams"], theirs["streams"])
