"""The Metal text that MLX makes of a kernel body, and what the harness makes of that text.

``head`` follows MLX 0.32's ``mx.fast.metal_kernel``; a test compares it with the text that MLX
prints while a function is exported, which works without Metal.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Attributes of a thread by type of parameter: MLX adds those whose names occur in the body.
UINT3_ATTRIBUTES = (
    "dispatch_threads_per_threadgroup",
    "grid_origin",
    "grid_size",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
)
UINT_ATTRIBUTES = (
    "dispatch_quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_threadgroup",
    "threads_per_simdgroup",
)
_METAL_TYPES = {
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "bool": "bool",
    **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
}
SMALL_INPUT = 8  # inputs of fewer elements are in the constant address space
MAX_ARGUMENTS = 31  # buffers of one Metal kernel


def dtype_name(dtype: object) -> str:
    """``mx.float16``, ``np.float16``, ``np.dtype("float16")`` and ``"float16"`` -> "float16"."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name is None:
        name = str(dtype).split(".")[-1]
    return {"bool_": "bool"}.get(name, name)


def metal_type(dtype: object) -> str:
    """The Metal name of a dtype; KeyError-free: an unknown dtype is a ValueError."""
    name = dtype_name(dtype)
    if name not in _METAL_TYPES:
        raise ValueError(f"dtype {name} has no Metal type in MLX's kernels")
    return _METAL_TYPES[name]


@dataclass(frozen=True)
class Argument:
    """One ``[[buffer(i)]]``: its C type, its name, and what is bound to it."""

    type: str
    name: str
    bound: str  # an input or output name, or NAME:shape, NAME:strides, NAME:ndim

    @property
    def pointee(self) -> str:
        """The type without address space, pointer and reference."""
        words = self.type.rstrip("*&").split()
        return " ".join(w for w in words if w not in ("const", "constant", "device"))


@dataclass(frozen=True)
class KernelText:
    """The text of one kernel variant in parts, as MLX puts them together."""

    name: str
    header: str
    template_line: str
    template_values: tuple[str, ...]
    arguments: tuple[Argument, ...]
    attributes: tuple[tuple[str, str], ...]
    body: str

    def metal(self) -> str:
        """What MLX gives to Metal's compiler, without its preamble."""
        lines = [f"  {a.type} {a.name} [[buffer({i})]]" for i, a in enumerate(self.arguments)]
        lines += [f"  {kind} {name} [[{name}]]" for kind, name in self.attributes]
        text = self.header + self.template_line
        text += (
            f"[[kernel]] void {self.name}(\n" + ",\n".join(lines) + ") {\n" + self.body + "\n}\n"
        )
        if self.template_values:
            full = f"{self.name}<{', '.join(self.template_values)}>"
            text += f'\ntemplate [[host_name("{self.name}")]] [[kernel]] decltype({full}) {full};\n'
        return text


@dataclass(frozen=True)
class InputShape:
    """What of an input decides the text."""

    dtype: str
    n_axes: int
    size: int


def kernel_text(
    name: str,
    inputs: Sequence[tuple[str, InputShape]],
    outputs: Sequence[tuple[str, object]],
    body: str,
    header: str = "",
    template: Sequence[tuple[str, object]] = (),
    atomic_outputs: bool = False,
) -> KernelText:
    """The text of MLX for a kernel and these inputs, outputs (name, dtype) and template values."""
    parameters, values, suffix = [], [], ""
    for key, value in template:
        if isinstance(value, bool):
            kind, text = "bool", str(int(value))
        elif isinstance(value, int):
            kind, text = "int", str(value)
        else:
            kind, text = "typename", metal_type(value)
        parameters.append(f"{kind} {key}")
        values.append(text)
        suffix += "_" + text.replace("-", "_")
    arguments: list[Argument] = []
    types = ""
    for key, array in inputs:
        kind = metal_type(array.dtype)
        if array.n_axes == 0:
            types += f"_{kind}s"
            arguments.append(Argument(f"const constant {kind}&", key, key))
            continue
        space = "constant" if array.size < SMALL_INPUT else "device"
        types += f"_{kind}" + ("c" if array.size < SMALL_INPUT else "")
        arguments.append(Argument(f"const {space} {kind}*", key, key))
        # By substring, comments included: that is how MLX looks for them.
        for part, part_type in (
            ("shape", "const constant int*"),
            ("strides", "const constant int64_t*"),
            ("ndim", "const constant int&"),
        ):
            if f"{key}_{part}" in body:
                arguments.append(Argument(part_type, f"{key}_{part}", f"{key}:{part}"))
    for key, dtype in outputs:
        kind = metal_type(dtype)
        types += f"_{kind}"
        pointee = f"atomic<{kind}>" if atomic_outputs else kind
        arguments.append(Argument(f"device {pointee}*", key, key))
    attributes = [("uint3", a) for a in UINT3_ATTRIBUTES if a in body]
    attributes += [("uint", a) for a in UINT_ATTRIBUTES if a in body]
    if len(outputs) > 1 and not attributes and len(arguments) > len(inputs) + len(outputs):
        raise ValueError(f"{name} names no attribute: MLX 0.32 then drops its second output")
    return KernelText(
        name=f"custom_kernel_{name}" + (f"_{suffix}" if suffix else "") + types,
        header=header,
        template_line=f"template <{', '.join(parameters)}>\n" if parameters else "",
        template_values=tuple(values),
        arguments=tuple(arguments),
        attributes=tuple(sorted(attributes, key=lambda pair: pair[1])),
        body=body,
    )


_THREADGROUP_VARIABLE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\bthreadgroup\s+(?P<type>[A-Za-z_][\w:]*(?:\s*<[^;<>]*>)?)\s+(?P<name>\w+)\s*"
    r"(?P<size>(?:\[[^\]]*\]\s*)*);",
    re.DOTALL,
)


def place_threadgroup_arrays(text: str) -> str:
    """Turn each threadgroup array into a reference into the harness's arena, on the same line.

    A static variable would be initialised by one lane only, and would leave no room around it
    that an overrun can be found in.
    """
    counter = iter(range(1_000_000))

    def replace(match: re.Match) -> str:
        if match["type"] is None:
            return match[0]  # a comment
        kind, name, size = match["type"], match["name"], match["size"].strip()
        line_breaks = "\n" * match[0].count("\n")
        whole = f"{kind}{size}" if size else kind
        pointer = f"{kind}(*){size}" if size else f"{kind}*"
        return (
            f"auto& {name} = *({pointer})rt_threadgroup({next(counter)}, "
            f'sizeof({whole}), 64, "{name}");{line_breaks}'
        )

    return _THREADGROUP_VARIABLE.sub(replace, text)


_SWIZZLE_ASSIGNMENT = re.compile(r"\.(?:[xyzw]{2,4}|[rgba]{2,4})\s*[-+*/]?=(?!=)")

_POSITION_EXPRESSIONS = {
    "thread_index_in_simdgroup": "p->thread_index_in_threadgroup % 32u",
    "simdgroup_index_in_threadgroup": "p->thread_index_in_threadgroup / 32u",
    "thread_index_in_quadgroup": "p->thread_index_in_threadgroup % 4u",
    "quadgroup_index_in_threadgroup": "p->thread_index_in_threadgroup / 4u",
    "quadgroups_per_threadgroup": "8u * p->simdgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup": "8u * p->dispatch_simdgroups_per_threadgroup",
    "threads_per_simdgroup": "32u",
    "thread_execution_width": "32u",
    "grid_size": "uint3(p->threads_per_grid[0], p->threads_per_grid[1], p->threads_per_grid[2])",
    "grid_origin": "uint3(0u, 0u, 0u)",
}


def attribute_expression(kind: str, name: str) -> str:
    """C++ for the value of an attribute, from ``const rt_position* p``."""
    if name in _POSITION_EXPRESSIONS:
        return _POSITION_EXPRESSIONS[name]
    return f"uint3(p->{name}[0], p->{name}[1], p->{name}[2])" if kind == "uint3" else f"p->{name}"


def harness_text(kernel: KernelText) -> str:
    """C++ of one kernel variant for the shim: the unchanged body, and an entry function."""
    if assigned := _SWIZZLE_ASSIGNMENT.search(kernel.header + kernel.body):
        raise ValueError(
            f"{kernel.name} assigns to a swizzle ({assigned[0].strip()}): use elements"
        )
    # The signature must end where MLX's ends, and the body keep its line numbers.
    whole = kernel.metal().split("\ntemplate [[host_name(")[0]
    start = whole.index("[[kernel]] void " + kernel.name)
    body_start = whole.index(") {\n", start) + len(") {\n")
    head = whole[len(kernel.header) : body_start]
    callee = kernel.name
    if kernel.template_values:
        callee += f"<{', '.join(kernel.template_values)}>"
    values = []
    for i, argument in enumerate(kernel.arguments):
        kind = argument.type.replace("const constant", "const").rstrip("&*").strip()
        star = "*" if argument.type.endswith("&") else ""
        values.append(f"{star}({kind}*)buffers[{i}]")
    values += [attribute_expression(kind, name) for kind, name in kernel.attributes]
    text = "\n".join(
        [
            '#include "metal_shim.h"',
            '#line 1 "header.metal"',
            kernel.header,
            '#line 1 "head.metal"',
            head + '#line 1 "body.metal"',
            kernel.body,
            "}",
            '#line 1 "entry.cpp"',
            'extern "C" void kernel_entry(void* const* buffers, const rt_position* p) {',
            "  (void)p;",
            f"  {callee}({', '.join(values)});",
            "}",
            "",
        ]
    )
    return place_threadgroup_arrays(text)
