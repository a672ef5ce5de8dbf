"""Every Metal kernel of the project: right, faultless, frugal, and none is left out."""

import ast
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

import mlx_kernels  # noqa: E402
from mlx_kernels.blocks import type_name  # noqa: E402
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DECODE_KERNELS  # noqa: E402
from mlx_kernels.gpu.metal_cases import Case, Run, all_cases  # noqa: E402
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, METAL_KERNELS, metal_name  # noqa: E402
from tests.metal import compiler  # noqa: E402
from tests.metal.address_spaces import lint, with_device_inputs  # noqa: E402
from tests.metal.cases import differs_by_order, findings_of, run_case  # noqa: E402
from tests.metal.mlx_kernel import Launch  # noqa: E402

BODIES = resources.files("mlx_kernels.gpu").joinpath("bodies")
FORMATS_FILE = "packed_formats.metal"  # a kernel with it in its header is made for each format
CASES = {case.name: case for case in all_cases()}
# Kernels without a least number of bytes, and why.
NOT_DECODE: dict[str, str] = {
    metal_name(kernel, type_id): "a tile of weights is read for every 32 positions"
    for kernel, types in (("tile_product", (1, 8, 10, 16, 39)), ("tile_gate_up", (1, 16, 39)))
    for type_id in types
} | {
    "ds4_v4_attention": "a key row is read by every head, from the cache of its group",
    "ds4_v4_index_scores": "a row is read by every eight heads, from the cache of its group",
    "ds4_v4_combine": "small: chunks of 32 rows, not the rows",
    "ds4_v4_top_k": "small: four bytes a row, in registers up to 16384 rows",
    "ds4_v4_post": "small: one position's streams",
    "ds4_v4_head_mix": "small: one position's streams",
    "ds4_functions_of_v4_rounding": "functions of a value, apart from their kernels",
    "ds4_functions_of_v4_gates": "functions of a value, apart from their kernels",
    "ds4_functions_of_v4_order": "functions of a value, apart from their kernels",
    "ds4_functions_of_v4_pooling": "functions of a value, apart from their kernels",
}


@cache
def ran(name: str, build: str = "fast") -> tuple[Run, list[Launch]]:
    return run_case(CASES[name], build)


def launches_of(name: str) -> list[Launch]:
    return ran(name)[1]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("build", ["fast", "checked"])
def test_case(case: Case, build: str) -> None:
    assert findings_of(*ran(case.name, build), build) == []


def test_bits_are_the_same_in_every_order(case: Case) -> None:
    assert differs_by_order(launches_of(case.name)) == []


@pytest.mark.slow
@pytest.mark.skipif(
    "clang" not in compiler.available_builds(), reason="needs clang 16 or newer for its bounds"
)
def test_case_in_the_clang_build(case: Case) -> None:
    assert findings_of(*run_case(case, "clang"), "clang") == []


def test_every_metal_text_is_launched_by_a_case() -> None:
    texts = {
        part
        for name in CASES
        for launch in launches_of(name)
        for part in (launch.kernel.header, launch.kernel.source)
    }
    left_out = [
        path.name
        for path in BODIES.iterdir()
        if path.name.endswith(".metal")
        and not any(path.read_text(encoding="utf-8").strip() in text for text in texts)
    ]
    assert left_out == [], "add a case to mlx_kernels/gpu/metal_cases"


def test_every_kernel_and_every_format_of_the_list_is_launched() -> None:
    """Not each kernel in each format: a format's code is one text for all kernels."""
    launched = {launch.kernel.name for name in CASES for launch in launches_of(name)}
    in_formats = {
        name: {metal_name(name, type_id) for type_id in METAL_FORMATS}
        for name, kernel in METAL_KERNELS.items()
        if FORMATS_FILE in kernel.header
    }
    left_out = [
        name
        for name in (*METAL_KERNELS, *DECODE_KERNELS)
        if not launched & (in_formats.get(name) or {metal_name(name, None)})
    ]
    left_out += [
        type_name(type_id)
        for type_id in sorted(METAL_FORMATS)
        if not launched & {metal_name(name, type_id) for name in in_formats}
    ]
    assert left_out == [], "add a case to mlx_kernels/gpu/metal_cases"


def test_every_kernel_states_its_least_bytes_or_why_not() -> None:
    launched, stated = set(), set()
    for name in CASES:
        run, launches = ran(name)
        launched |= {launch.kernel.name for launch in launches}
        stated |= set(run.traffic)
    assert launched - stated == set(NOT_DECODE)


def test_metal_kernels_are_made_in_one_place() -> None:
    """Elsewhere a kernel could be made that no case knows of."""
    makers = [
        path.name
        for path in sorted(Path(mlx_kernels.__file__).parent.rglob("*.py"))
        if any(
            isinstance(node, ast.Attribute) and node.attr == "metal_kernel"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert makers == ["metal_kernels.py"]


@pytest.mark.skipif(
    "clang" not in compiler.available_builds(),
    reason="needs clang 16 or newer for the address spaces",
)
@pytest.mark.parametrize("is_device", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_address_spaces(is_device: bool) -> None:
    """Each text as launched, or as it is when its small inputs have eight elements or more."""
    texts = {}
    for name in CASES:
        for launch in launches_of(name):
            a = launch.arguments
            text = launch.kernel.kernel_text(a["inputs"], a["output_dtypes"], a["template"])
            texts[with_device_inputs(text) if is_device else text] = launch.kernel.name
    if not is_device:  # one of each kernel
        texts = {text: name for name, text in {name: text for text, name in texts.items()}.items()}
    with ThreadPoolExecutor(2) as pool:
        messages = dict(zip(texts.values(), pool.map(lint, texts), strict=True))
    assert {name: message for name, message in messages.items() if message} == {}
