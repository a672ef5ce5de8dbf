"""Kernels of MLX itself, read from the installed wheel and never copied, made ready for the shim.

They are proven on Apple hardware, so they test the shim: what they compute here must be right.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.metal import text

# What the cut includes would have brought, in our own words. The header of type traits cannot be
# used: it specialises on address spaces, which are erased here.
STAND_INS = """
#define METAL_FUNC inline
#define SOFTMAX_N_READS 4
constexpr int ceildiv(int a, int b) { return (a + b - 1) / b; }
struct complex64_t { float real, imag; };
template <bool B, class T, class U>
struct ConditionalType { using type = std::conditional_t<B, T, U>; };
template <class T> T quad_sum(T);  // of kernels that are not run
namespace metal {
using std::bool_constant; using std::is_integral; using std::remove_cv_t;
template <class T> using remove_addrspace_t = std::remove_cv_t<T>;
template <class T> using pointer_element_t = std::remove_cv_t<std::remove_pointer_t<T>>;
}
"""


class HeaderMoved(Exception):
    """The installed MLX has no such header; the text names it."""


def kernel_folder() -> Path:
    """The folder of MLX's Metal headers in the installed wheel. Raises HeaderMoved."""
    try:
        import mlx
    except ImportError as error:
        raise HeaderMoved("needs MLX, whose own kernels are run") from error
    for base in mlx.__path__:
        folder = Path(base) / "include/mlx/backend/metal/kernels"
        if folder.is_dir():
            return folder
    raise HeaderMoved("the installed MLX carries no headers of its Metal kernels")


def mlx_text(headers: Sequence[str], constants: dict[str, str], call: str) -> str:
    """C++ of some headers for the shim, and an entry that runs ``call``.

    Args:
        headers: In the order of use, relative to the folder of kernels.
        constants: Values of function constants; the others are false or 0.
        call: C++ of the call; ``buffers[i]`` and ``p`` (positions) are at hand.
    """
    parts = ['#include "metal_shim.h"', STAND_INS]
    for header in headers:
        path = kernel_folder() / header
        if not path.is_file():
            raise HeaderMoved(f"the installed MLX has no {header}")
        source = path.read_text(encoding="utf-8")
        source = re.sub(r"(?m)^\s*#\s*(include|pragma)\b.*$", "", source)
        source = re.sub(
            r"constant (\w+) (\w+) \[\[function_constant\(\d+\)\]\];",
            lambda m: f"constexpr {m[1]} {m[2]} = {m[1]}({constants.get(m[2], '0')});",
            source,
        )
        parts += [f'#line 1 "{path.name}"', re.sub(r"\[\[[^\]]*\]\]", "", source)]
    parts += [
        '#line 1 "entry.cpp"',
        'extern "C" void kernel_entry(void* const* buffers, const rt_position* p) {',
        f"  {call}",
        "}",
        "",
    ]
    return text.place_threadgroup_arrays("\n".join(parts))
