"""Fused functions in threads that end with the process."""

import subprocess
import sys

import pytest

pytest.importorskip("mlx.core", reason="needs mlx")

_N_PROCESSES = 8  # where graphs outlive their thread, every second one is aborted

_CHILD = """
import threading

import mlx.core as mx

from mlx_kernels.gpu.fusion import fused

mx.set_default_device(mx.cpu)
mx.default_device = lambda: mx.gpu  # fuses; nothing is evaluated
functions = [fused(lambda a, b, i=i: (a + b) * i) for i in range(200)]


def work():
    for function in functions:
        for n in range(1, 6):
            assert function(mx.zeros((n,)), mx.zeros((n,))).shape == (n,)


thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_graphs_do_not_outlive_their_thread():
    for _ in range(_N_PROCESSES):
        child = subprocess.run(
            [sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=120, check=False
        )
        assert (child.returncode, child.stderr) == (0, "")
