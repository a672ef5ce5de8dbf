"""The list of CUDA kernels: files exist and use what it names; launches are put together."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import mlx_kernels

if importlib.util.find_spec("mlx") is None:
    pytest.skip("needs mlx (pip install ds4-agent[cpu])", allow_module_level=True)

import mlx.core as mx

from mlx_kernels.blocks import BLOCK
from mlx_kernels.gpu.kernels import FORMATS, KERNELS, CudaKernels, source_of

TENSOR_FORMATS = (10, 12, 16, 39)  # Q2_K, Q4_K, IQ2_XXS, MXFP4: of the kernels named tensor_*

BODIES = Path(mlx_kernels.__file__).parent / "gpu" / "bodies"
PACKED = sorted(n for n, k in KERNELS.items() if any("quants" in name for name in k.inputs))


def test_every_file_belongs_to_a_kernel() -> None:
    used = {file for kernel in KERNELS.values() for file in (*kernel.header, kernel.body)}
    assert {file for file in used if file.endswith(".cu")} == {p.name for p in BODIES.glob("*.cu")}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_body_uses_the_names_of_the_list(name: str) -> None:
    kernel = KERNELS[name]
    words = set(re.findall(r"\w+", (BODIES / kernel.body).read_text(encoding="utf-8")))
    names = {*kernel.inputs, kernel.output, *kernel.more_outputs, *kernel.template}
    assert names <= words


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("type_id", sorted(FORMATS))
def test_a_header_defines_the_format(name: str, type_id: int) -> None:
    header, body = source_of(KERNELS[name], type_id)
    form = BLOCK[type_id].name
    if name.startswith("tensor_") and type_id not in TENSOR_FORMATS:
        return  # other types take gate_up and down
    assert re.search(rf"(struct|using) {form}\b", header)
    assert header.endswith(f"using Format = {form};\n") and "Format" in body


def test_an_object_is_made_once_and_again_for_more_shared_memory() -> None:
    made: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []

    def make(**arguments: Any) -> Any:
        made.append(arguments)

        def call(**launch: Any) -> list[Any]:
            calls.append(launch)
            return [mx.zeros(launch["output_shapes"][0])]

        return call

    kernels = CudaKernels(make)
    inputs = [mx.zeros(8)] * len(KERNELS["down"].inputs)
    for shared_bytes in (900, 900, 48_001, 60_000):
        kernels.launch(
            "down",
            8,
            inputs,
            dict.fromkeys(KERNELS["down"].template, 1),
            (5, 2),
            (2, 8),
            shared_bytes=shared_bytes,
        )
    assert [(m["name"], m["shared_memory"]) for m in made] == [
        ("ds4_down_q8_0", 900),
        ("ds4_down_q8_0_49152", 49152),
        ("ds4_down_q8_0_65536", 65536),
    ]
    assert {call["grid"] for call in calls} == {(5 * 256, 2, 1)}
