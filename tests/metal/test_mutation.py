"""Small changes of every kernel's text are found by its cases, or known as harmless."""

import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from mlx_kernels.gpu.metal_cases import all_cases  # noqa: E402
from tests.metal import compiler, mutation  # noqa: E402
from tests.metal.mutants import mutants  # noqa: E402
from tests.metal.sample_kernels import RMS_NORM  # noqa: E402

LINE = """threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = lane; i < n - 1u; i += 32u) { // i < 5
  float a = 0.5f;
  const int b = c[i] * -1 << 3;
  a = simd_sum(vec<float, 4>(a).x) + float(thread_position_in_grid.x & 0x1Fu);
  threadgroup float d[2 * 32][N + 1], e;
}
"""


def test_rules() -> None:
    changes = {(m.line, m.rule, LINE[m.start : m.end], m.new) for m in mutants(LINE)}
    assert {
        (1, "barrier", "threadgroup_barrier(mem_flags::mem_threadgroup)", ""),
        (1, "flag", "mem_threadgroup", "mem_none"),
        (2, "bound", "<", "<="),
        (2, "constant", "1u", "2u"),
        (2, "accumulation", "+=", "="),
        (2, "constant", "32u", "33u"),
        (2, "initialisation", " = lane", ""),
        (3, "constant", "0.5f", "(0.5f + 1.0f)"),
        (3, "initialisation", " = 0.5f", ""),
        (5, "collective", "simd_sum", "simd_max"),
        (5, "collective", "simd_sum", ""),
        (5, "lane", "thread_position_in_grid.x", "(thread_position_in_grid.x + 1u)"),
        (5, "constant", "0x1Fu", "0xfu"),
        (6, "extent", "2 * 32", "(2 * 32) - 1"),
        (6, "extent", "N + 1", "(N + 1) - 1"),
    } <= changes
    # Nothing of comments, of template arguments, of a const's value.
    assert not [c for c in changes if c[0] == 2 and c[2] == "5"]
    # A bigger array is never wrong.
    assert not [c for c in changes if c[0] == 6 and c[1] == "constant"]
    assert not [c for c in changes if c[0] == 4 and c[1] == "initialisation"]
    assert not [c for c in changes if c[2] in ("<", ">") and c[0] == 5]
    keys = [m.key for m in mutants(RMS_NORM)]
    assert len(set(keys)) == len(keys) > 30
    for m in mutants(RMS_NORM):
        assert m.apply(RMS_NORM) != RMS_NORM


def test_key_of_a_mutant_stays_when_other_lines_change() -> None:
    before = {m.key for m in mutants(RMS_NORM)}
    after = {m.key for m in mutants("// more\nint x = 1;\n" + RMS_NORM)}
    assert before < after


def test_sample_of_mutants_is_found() -> None:
    """A dozen, spread over the text of a kernel; all of them are run by the slow test."""
    names = ("matvec Q8_0", "matvec F16", "matvec IQ2_XXS", "matvec Q5_K")
    cases = [case for case in all_cases() if case.name.startswith(names)]
    assert len(cases) >= len(names)
    text = {"packed_matvec.metal": mutation.project_texts()["packed_matvec.metal"]}
    texts = mutation.recorded_texts(text, cases)
    chosen, _ = mutation.divided(texts, mutation.known_harmless())
    verdicts = list(mutation.run_mutants(texts, chosen[:: len(chosen) // 12]))
    assert sum(v.how == "fast" for v in verdicts) >= 6
    lost = [f"{v.text}: {v.mutant.key}" for v in verdicts if v.how == mutation.NOT_FOUND]
    assert lost == []


@pytest.mark.slow
@pytest.mark.skipif(
    "clang" not in compiler.available_builds(),
    reason="needs clang 16 or newer, which alone finds an index past a lane's own array",
)
def test_every_mutant_is_found_or_harmless() -> None:
    texts = mutation.recorded_texts(mutation.project_texts(), all_cases())
    harmless = mutation.known_harmless()
    chosen, verdicts = mutation.divided(texts, harmless)
    verdicts += mutation.run_mutants(texts, chosen)
    print(mutation.figures(verdicts))
    lost = [f"{v.text}: {v.mutant.key}" for v in verdicts if v.how == mutation.NOT_FOUND]
    assert lost == [], "add a case that finds it, or the reason to harmless_mutants.toml"
    left = {
        f"{text.name}: {key}"
        for text in texts
        for key in harmless.get(text.name, {}).keys() - {m.key for m in mutants(text.text)}
    }
    assert not left, "these mutants are no more: take them out of harmless_mutants.toml"
