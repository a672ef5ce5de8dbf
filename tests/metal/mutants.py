"""Mutants of a kernel's text: one small change each, by rules. Most are bugs that people write.

| rule | change |
| --- | --- |
| barrier | a barrier removed |
| flag | a barrier without its memory flag |
| bound | ``<`` to ``<=``, ``<=`` to ``<``, ``>`` to ``>=``, ``>=`` to ``>`` |
| constant | an integer n to n + 1, a float x to x + 1, a hexadecimal one without its highest bit |
| extent | an array with one element less |
| lane | an index of lane, simdgroup or group plus 1 |
| collective | a sum, maximum or shuffle left out or replaced by another |
| initialisation | a variable without its first value |
| accumulation | ``+=`` and the like to ``=`` |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tests.metal.text import UINT3_ATTRIBUTES, UINT_ATTRIBUTES

_TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|^[ \t]*\#[^\n]*)
    |(?P<number>\b(?:0[xX][0-9a-fA-F]+|\d+\.\d*(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?)[uUlLfFhH]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<operator><<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|->|::|[-+*/%&|^]=|[-+*/%&|^<>=!~?:;,.(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_BOUNDS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COLLECTIVES = {
    **{"simd_sum": ("", "simd_max"), "simd_max": ("", "simd_sum"), "simd_min": ("", "simd_max")},
    **{"simd_shuffle_xor": ("simd_shuffle_down",), "simd_shuffle_down": ("simd_shuffle_up",)},
    **{"simd_shuffle_up": ("simd_shuffle_down",), "simd_shuffle": ("simd_shuffle_xor",)},
    **{"simd_any": ("", "simd_all"), "simd_all": ("", "simd_any")},
    "simd_prefix_exclusive_sum": ("simd_prefix_inclusive_sum",),
    "simd_prefix_inclusive_sum": ("simd_prefix_exclusive_sum",),
}
_SCALAR = r"(?:(?:u?int|u?short|u?char|u?long|float|half|bfloat)[234]?|u?int(?:8|16|32|64)_t|bool)"
# One element of an array that a kernel declares: a bigger one is never wrong.
_ARRAY = re.compile(
    rf"(?:threadgroup )?(?:{_SCALAR}|simdgroup_\w+) \w+(?P<extents>(?:\[[^\]]+\])+)(?=[;,])"
)
_INITIALISATION = re.compile(rf"(?<!const )\b{_SCALAR} \w+(?P<value>(?:\[[^\]]*\])? = [^;]*)(?=;)")


@dataclass(frozen=True)
class Mutant:
    """One change of a text; ``key`` tells it among all of the text, whatever stands around it."""

    rule: str
    line: int  # from 1
    start: int
    end: int
    new: str
    key: str

    def apply(self, text: str) -> str:
        """The text with the change."""
        return text[: self.start] + self.new + text[self.end :]


def mutants(text: str) -> list[Mutant]:
    """Every mutant, by position."""
    found = sorted(set(_changes(text)), key=lambda change: (change[1], change[2], change[3]))
    lines = text.split("\n")
    seen: dict[str, int] = {}
    result = []
    for rule, start, end, new in found:
        line = text.count("\n", 0, start)
        content = " ".join(lines[line].split())
        at = len(" ".join(text[text.rfind("\n", 0, start) + 1 : start].split()))
        key = f"{content} | {at}: {text[start:end].strip()} -> {new.strip()}"
        # The same line may stand in several places: they are numbered.
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            key += f" #{seen[key]}"
        result.append(Mutant(rule, line + 1, start, end, new, key))
    return result


def _changes(text: str) -> Iterator[tuple[str, int, int, str]]:
    """(rule, start, end, new text) of each mutant."""
    extents = list(_extents(text))
    for start, end in extents:
        yield "extent", start, end, f"({text[start:end]}) - 1"
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    for token, after in zip_longest(tokens, tokens[1:]):
        span, word = token.span(), token[0]
        match token.lastgroup:
            case "number" if not any(start <= span[0] < end for start, end in extents):
                yield "constant", *span, _changed(word)
            case "name":
                yield from _changes_of_name(text, token, after)
            case "operator" if word in _BOUNDS and _is_spaced(text, token):
                yield "bound", *span, _BOUNDS[word]
            case "operator" if len(word) > 1 and word[-1] == "=" and word[0] in "+-*/%&|^<>":
                yield "accumulation", *span, "="
    for match in _INITIALISATION.finditer(_blanked(text)):
        if not text[: match.start()].rstrip().endswith(("const", "constexpr", "constant")):
            yield "initialisation", *match.span("value"), ""


def _changes_of_name(text: str, token: re.Match, after: re.Match | None) -> Iterator:
    word, (start, end) = token[0], token.span()
    if word in ("threadgroup_barrier", "simdgroup_barrier"):
        close = text.index(")", end) + 1
        yield "barrier", start, close, ""
    elif word in ("mem_threadgroup", "mem_device"):
        yield "flag", start, end, "mem_none"
    elif word in UINT_ATTRIBUTES:
        yield "lane", start, end, f"({word} + 1u)"
    elif word in UINT3_ATTRIBUTES and after is not None and after[0] == ".":
        whole = text[start : after.end() + 1]
        yield "lane", start, after.end() + 1, f"({whole} + 1u)"
    elif word in _COLLECTIVES and after is not None and after[0] == "(":
        for other in _COLLECTIVES[word]:
            yield "collective", start, end, other


def _is_spaced(text: str, token: re.Match) -> bool:
    """A comparison has spaces around it, a list of template arguments has not."""
    before = text[: token.start()]
    return (
        before.endswith((" ", "\n"))
        and text[token.end() : token.end() + 1] in (" ", "\n")
        and not before.rstrip().endswith("template")
    )


def _changed(number: str) -> str:
    is_hexadecimal = number[:2].lower() == "0x"
    digits = number.rstrip("uUlLhH" if is_hexadecimal else "uUlLfFhH")
    suffix = number[len(digits) :]
    if is_hexadecimal:  # a mask or a pattern of bits
        value = int(digits, 16)
        return hex(value & ~(1 << value.bit_length() >> 1)) + suffix
    if re.fullmatch(r"\d+", digits):
        return str(int(digits) + 1) + suffix
    return f"({number} + 1.0f)"


def _extents(text: str) -> Iterator[tuple[int, int]]:
    """Where the number of elements of an array stands in its declaration."""
    for match in _ARRAY.finditer(_blanked(text)):
        for extent in re.finditer(r"\[([^\]]+)\]", match["extents"]):
            first = match.start("extents")
            yield first + extent.start(1), first + extent.end(1)


def _blanked(text: str) -> str:
    """The text with comments, strings and preprocessor lines as blanks."""
    return _TOKEN.sub(
        lambda m: re.sub(r"[^\n]", " ", m[0]) if m.lastgroup == "skip" else m[0], text
    )
