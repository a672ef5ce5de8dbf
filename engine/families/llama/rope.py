"""Rotary position frequencies of a Llama-like model, with the ways to stretch its context.

Plain RoPE turns pair j of a head of D values by ``base ** (-2 j / D)`` radians a position. A model
that was trained on short texts can read longer ones if its slow pairs turn more slowly:

* *linear*: every frequency is divided by one factor;
* *llama3*: a factor for each pair, stored as the tensor ``rope_freqs.weight``;
* *yarn* (Peng et al. 2023): pairs that turn many times within the trained context stay as they
  are, pairs that turn less than once are divided by the factor, the ones between are mixed, and
  the scores get a little sharper.
"""

import math

import numpy as np

from engine.errors import ModelFileError
from engine.families.metadata import Facts
from mlx_kernels.ops import RopeSpec

_DEFAULT_BASE = 10000.0  # of the original paper; files that mean another one say so
_YARN_FAST_TURNS = 32.0  # turns within the trained context above which a pair stays: the paper's
_YARN_SLOW_TURNS = 1.0  # turns below which a pair is fully slowed


def rope_spec(facts: Facts, head_dim: int, factors: np.ndarray | None) -> RopeSpec:
    """Read the rotation from a file's metadata.

    Args:
        facts: The metadata of the file.
        head_dim: D, values of a head; all of them turn.
        factors: The tensor ``rope_freqs.weight`` [D / 2], where the file has it.

    Raises:
        ModelFileError: the file asks for a scaling or a partial rotation not known here.
    """
    n_turned = facts.integer("rope.dimension_count", head_dim)
    if n_turned != head_dim:
        raise ModelFileError(
            f"{facts.file_name} turns {n_turned} values of a head, expected all {head_dim}",
            "Use a Llama, Qwen2 or Qwen3 model.",
        )
    base = facts.real("rope.freq_base", _DEFAULT_BASE)
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)  # [D / 2] float64
    magnitude = 1.0
    factor = facts.real("rope.scaling.factor", facts.real("rope.scale_linear", 1.0))
    kind = facts.text("rope.scaling.type", "linear")
    match kind:
        case "none":
            pass
        case "linear":
            frequencies = frequencies / factor
        case "yarn":
            trained = facts.integer("rope.scaling.original_context_length")
            frequencies = _yarn(frequencies, base, factor, trained)
            magnitude = facts.real("rope.scaling.attn_factor", 1.0)
            magnitude *= 1.0 + 0.1 * math.log(max(factor, 1.0))
        case _:
            raise ModelFileError(
                f"{facts.file_name} has rope scaling {kind!r}, expected none, linear or yarn",
                "Use a Llama, Qwen2 or Qwen3 model.",
            )
    if factors is not None:
        frequencies = frequencies / factors
    # Llama files store the rows of q and k in an order that pairs neighbours; Qwen files don't.
    return RopeSpec(frequencies, facts.architecture == "llama", magnitude)


def _yarn(frequencies: np.ndarray, base: float, factor: float, trained: int) -> np.ndarray:
    """Mix kept and slowed frequencies, [D / 2] each. ``trained`` is a context length in tokens."""
    head_dim = 2 * len(frequencies)

    def pair_turning(n_turns: float) -> float:
        return head_dim * math.log(trained / (n_turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(0, math.floor(pair_turning(_YARN_FAST_TURNS)))
    last = min(head_dim - 1, math.ceil(pair_turning(_YARN_SLOW_TURNS)))
    slowed = (np.arange(len(frequencies)) - first) / max(0.001, last - first)
    slowed = np.clip(slowed, 0.0, 1.0)
    return frequencies * (1.0 - slowed) + frequencies / factor * slowed
