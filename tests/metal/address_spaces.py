"""Checks the address spaces of a kernel's text with clang, in "C++ for OpenCL".

Metal's compiler is a clang with OpenCL's address spaces, which g++ does not see: a device pointer
in place of a threadgroup one, a pointer without a space, a write through ``const``, a double.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

from tests.metal import compiler
from tests.metal.text import KernelText

PRELUDE = Path(__file__).parent / "lint" / "prelude.h"
_TYPES = ("float", "half", "bfloat", "bool", "char", "uchar", "short", "ushort", "int", "uint")
_TYPES += ("long", "ulong", *(f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)))
_TYPES += tuple(f"{t}{n}" for t in _TYPES if not t.endswith("_t") for n in (2, 3, 4))
_FLAGS = [
    *("-x", "clcpp", "-cl-std=clc++2021", "-target", "spir64", "-fsyntax-only", "-cl-no-stdinc"),
    *("-Xclang", "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64,+cl_khr_fp16"),
    # A literal without f would be a double in Metal, too, which has none.
    *("-Werror=double-promotion", "-Werror=unknown-warning-option", "-Werror"),
    *("-Wno-unused", "-Wno-missing-braces", "-Wno-undefined-internal", "-Wno-undefined-inline"),
    *("-include", str(PRELUDE)),
]


def lint(kernel: KernelText) -> str:
    """Messages about a kernel's text, "" for none. Raises ``compiler.MissingCompiler``."""
    if found := pointers_without_space(kernel.header + kernel.body):
        return f"a pointer or reference without address space: {found[0]}"
    done = subprocess.run(
        [compiler.compiler("clang"), *_FLAGS, "-"],
        input=lint_text(kernel),
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


def with_device_inputs(kernel: KernelText) -> KernelText:
    """The text for inputs of eight elements or more: MLX puts smaller ones in ``constant``."""
    arguments = tuple(
        replace(a, type=a.type.replace("constant", "device"))
        if ":" not in a.bound and a.type.endswith("*")
        else a
        for a in kernel.arguments
    )
    return replace(kernel, arguments=arguments)


def pointers_without_space(text: str) -> list[str]:
    """Declarations of pointers and references to a type without an address space.

    clang would take them for pointers to any space, which Metal has not; without such pointers it
    can't copy a struct. So this is searched for in the text.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    types = {*_TYPES, *re.findall(r"\b(?:struct|typename|class) (\w+)", code)}
    one_type = rf"(?:{'|'.join(sorted(types, key=len, reverse=True))})(?:<[^<>;]*>)?"
    found = []
    for match in re.finditer(rf"\b{one_type}(?: const)?\s*[*&]+\s*(?:const )?\w*\s*[,;=)(]", code):
        before = re.split(r"[;{}(,<>]", code[: match.start()])[-1]
        if not re.search(r"\b(device|threadgroup|constant|thread)\b", before):
            found.append(" ".join((before.strip() + " " + match[0]).split()))
    return found


def lint_text(kernel: KernelText) -> str:
    """OpenCL C++ of one kernel variant: no template, attributes as values, no references."""
    parameters, values = [], []
    for a in kernel.arguments:
        if a.type.endswith("&"):  # kernels of OpenCL take no references
            parameters.append(f"{a.type[:-1]}* {a.name}_at")
            values.append(f"{a.type} {a.name} = *{a.name}_at;")
        elif "atomic<" in a.type:  # nor pointers to classes
            parameters.append(f"device {a.pointee[len('atomic<') : -1]}* {a.name}_at")
            values.append(f"{a.type} {a.name} = ({a.type}){a.name}_at;")
        else:
            parameters.append(f"{a.type} {a.name}")
    for kind, name in kernel.attributes:
        values.append(f"const {kind} {name} = {kind}(1);")
    names = re.findall(r"(typename|int|bool) (\w+)", kernel.template_line)
    for (kind, name), value in zip(names, kernel.template_values, strict=True):
        if kind == "typename":
            values.insert(0, f"using {name} = {value};")
        else:
            values.insert(0, f"constexpr {kind} {name} = {value};")
    return "\n".join(
        [
            '#line 1 "header.metal"',
            kernel.header,
            f"__kernel void lint({', '.join(parameters)}) {{",
            *values,
            '#line 1 "body.metal"',
            kernel.body,
            "}",
            "",
        ]
    )
