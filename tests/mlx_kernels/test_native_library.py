"""Finding the compiled library, its threads, and life without it."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from mlx_kernels.cpu import native, native_library
from mlx_kernels.errors import DeviceError
from tests.mlx_kernels.packed_samples import random_packed

needs_library = pytest.mark.skipif(
    not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
)


def test_without_the_library_nothing_is_available(monkeypatch):
    monkeypatch.setattr(native_library, "load_library", lambda: None)
    assert not native.is_available()
    with pytest.raises(DeviceError, match="not installed"):
        native.set_threads(2)


def test_default_threads_are_within_the_processors_of_the_process():
    assert 1 <= native_library.default_threads() <= (os.cpu_count() or 1)


@needs_library
def test_best_path_of_this_machine_is_chosen():
    native.debug_set_path("portable")
    assert native.path_name() == "portable"
    native.debug_set_path("auto")
    assert native.path_name() in ("avx512", "avx2", "neon", "portable")


@needs_library
def test_calls_from_several_threads_do_not_mix():
    rng = np.random.default_rng(5)
    weight = native.StackedWeight([random_packed(12, 300, 256, rng)])
    inputs = [rng.standard_normal((i + 1, 256)).astype(np.float32) for i in range(4)]
    outputs = [native.linear(x, weight) for x in inputs]
    wrong = []

    def repeat(i: int) -> None:
        for _ in range(200):
            if not np.array_equal(native.linear(inputs[i], weight), outputs[i]):
                wrong.append(i)

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not wrong


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_has_threads_of_its_own():
    code = """
import os, warnings
import numpy as np
from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.cpu import native
native.set_threads(2)
weight = native.StackedWeight([PackedMatrix(8, np.ones(34 * 400, np.uint8), (400, 32))])
x = np.ones((1, 32), np.float32)
before = native.linear(x, weight)
child = os.fork()
same = all(np.array_equal(native.linear(x, weight), before) for _ in range(100))
if child == 0:
    os._exit(0 if same else 1)
assert same and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
