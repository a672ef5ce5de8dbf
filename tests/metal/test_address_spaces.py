"""clang accepts the address spaces of correct texts and refuses one mistake of each kind."""

import numpy as np
import pytest

from tests.metal import compiler
from tests.metal.address_spaces import lint, pointers_without_space, with_device_inputs
from tests.metal.launch import MetalKernel
from tests.metal.sample_kernels import HISTOGRAM, MATMUL, Q8_0_MATVEC, RMS_NORM
from tests.metal.text import KernelText

pytestmark = pytest.mark.skipif(
    "clang" not in compiler.available_builds(),
    reason="needs clang 16 or newer for the address spaces",
)

_SIZES = np.zeros(3, np.int32)  # fewer than eight: in constant
KERNELS = {
    "q8_0": (
        MetalKernel("q8_0", ["w", "x", "sizes"], ["y"], Q8_0_MATVEC),
        [np.zeros((4, 340), np.uint8), np.zeros(320, np.float32), _SIZES],
        None,
    ),
    "rms": (
        MetalKernel("rms", ["x", "weight", "eps"], ["y"], RMS_NORM),
        [np.zeros((3, 64), np.float16), np.zeros(64, np.float32), np.zeros(1, np.float32)],
        [("T", "float16"), ("N", 64)],
    ),
    "matmul": (
        MetalKernel("matmul", ["a", "b", "sizes"], ["y"], MATMUL),
        [np.zeros((32, 32), np.float16), np.zeros((32, 32), np.float16), _SIZES],
        None,
    ),
    "histogram": (
        MetalKernel("histogram", ["values", "sizes"], ["counts"], HISTOGRAM, atomic_outputs=True),
        [np.zeros(300, np.uint8), _SIZES],
        None,
    ),
}


def text_of(name: str, old: str = "", new: str = "", header: str = "") -> KernelText:
    kernel, inputs, template = KERNELS[name]
    assert old in kernel.source
    source = kernel.source.replace(old, new, 1) if old else kernel.source
    changed = MetalKernel(
        name,
        kernel.input_names,
        kernel.output_names,
        source,
        header,
        atomic_outputs=kernel.atomic_outputs,
    )
    dtype = {"rms": "float16", "histogram": "uint32"}.get(name, "float32")
    return changed.kernel_text(inputs, [dtype], template)


@pytest.mark.parametrize("name", KERNELS)
def test_correct_texts(name: str) -> None:
    text = text_of(name)
    assert lint(text) == ""
    assert lint(with_device_inputs(text)) == ""


HELPER = "inline float first({} uint8_t* p) {{ return float(p[0]); }}\n"
MISTAKES = {
    "threadgroup to device": (
        ("matmul", "tile_a + (sub", "(const device half*)tile_a + (sub"),
        "conver",
    ),
    "pointer without space": (
        ("matmul", "half tile_b[32 * 40];", "half tile_b[32 * 40]; half* p = tile_a;"),
        "half* p =",
    ),
    "wrong space": (
        ("matmul", "uint m =", "const device half* p = tile_a; uint m ="),
        "cannot initialize a variable",
    ),
    "helper without space": (
        ("q8_0", "sum += scale * part;", "sum += first(w);", HELPER.format("const")),
        "without address space",
    ),
    "helper of another space": (
        ("q8_0", "sum += scale * part;", "sum += first(w);", HELPER.format("const threadgroup")),
        "no matching function",
    ),
    "half matrix from floats": (
        ("matmul", "threadgroup half tile_a", "threadgroup float tile_a"),
        "no matching function",
    ),
    "write to an input": (
        ("q8_0", "y[row] = sum;", "y[row] = sum; x[0] = 1.0f;"),
        "not assignable",
    ),
    "double": (("q8_0", "sum += scale * part;", "sum += scale * part * 0.5;"), "double"),
    "mixed types": (("q8_0", "lane == 0u", "min(lane, 1) == 0"), "no matching function"),
    "device pointer to a small input": (
        ("q8_0", "uint lane =", "const device int* s = sizes; uint lane ="),
        "cannot initialize a variable",
    ),
    "unknown name": (("rms", "rsqrt(", "rsqrtf("), "undeclared"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found(name: str) -> None:
    change, words = MISTAKES[name]
    assert words in lint(text_of(*change))


def test_auto_takes_both_spaces_of_a_small_input() -> None:
    text = text_of("q8_0", "uint lane =", "auto s = sizes; uint lane =")
    assert lint(text) == "" and lint(with_device_inputs(text)) == ""
    text = text_of("q8_0", "uint lane =", "const device int* s = sizes; uint lane =")
    assert lint(text) != "" and lint(with_device_inputs(text)) == ""


def test_search_for_pointers() -> None:
    right = """
    struct Planes { const device uint8_t* quants; };
    inline float4 f(const device float* x, threadgroup uint4* t, thread Planes& p, int i) {
      float a = 2.0f * b; // float* in a comment
      auto q = (const device float4*)(x + i) + a * b;
      return *(threadgroup const float4*)t;
    }
    """
    assert pointers_without_space(right) == []
    assert pointers_without_space("struct S { int a; }; void f(S& s, float b);") == ["S& s,"]
    assert pointers_without_space("auto p = (const float4*)(x + i);") == ["const float4*)"]
    assert pointers_without_space("template <typename T> void f(const T* p);") == ["const T* p)"]
