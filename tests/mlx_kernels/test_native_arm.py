"""The NEON path on an emulated 64-bit ARM processor, with and without the dot instruction."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "mlx_kernels" / "cpu" / "csrc"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
        reason=f"needs {COMPILER} and {EMULATOR} (Debian: gcc-aarch64-linux-gnu, qemu-user)",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arm") / "native_paths"
    sources = [*sorted(SOURCES.glob("*.c")), Path(__file__).with_name("native_paths.c")]
    # As in pyproject.toml, but -O2: the cross compiler of Debian 12 crashes on the program at -O3.
    options = ["-O2", "-ftree-vectorize", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-static"]
    subprocess.run(
        [COMPILER, *options, "-pthread", f"-I{SOURCES}", *sources, "-lm", "-o", path], check=True
    )
    return path


# cortex-a57 has no dot instruction, neoverse-n1 has
@pytest.mark.parametrize("processor", ["cortex-a57", "neoverse-n1"])
def test_neon_path_agrees_with_the_portable_one(program, processor):
    subprocess.run([EMULATOR, "-cpu", processor, program, "neon"], check=True, timeout=120)


def test_unknown_path_is_an_error(program):
    assert subprocess.run([EMULATOR, program, "avx2"], check=False, timeout=60).returncode == 2
