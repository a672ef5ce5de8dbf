"""Launches and bytes of one decoded token of a --synthetic model, from the graph alone.

Every input of a launch counts once, however many groups read it, and every output. Of experts the
chosen ones count, of compressed rows those that are read, of a row put into a buffer the row.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ds4agent.bench.synthetic import SyntheticFile
from engine.families.deepseek_v4.plan import DeepseekV4Plan
from mlx_kernels.deepseek_v4_ops import NetworkShape

_RATIO = 4  # tokens of the rows that complete most often
_MORE_TOKENS = 1024  # of the context: buffers have room
_CHUNK = 32  # rows of a group of the attention
_ROWS_INPUT = 3  # of the attention: compressed rows
_TABLE_INPUT = 2  # of the router: experts by token id


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """One token: launches and bytes read and written, by kernel or by node of MLX."""

    n_layers: int
    context: int
    launches: Counter[str]
    n_bytes: Counter[str]


class _ShapesOnly(SyntheticFile):
    """No values: zeros, whose memory the system gives when they are looked at."""

    def data(self, name: str) -> np.ndarray:
        """See ``GgufFile``."""
        return np.zeros(self._info(name).n_bytes, np.uint8)


def trace_token(name: str, n_layers: int, context: int, completes: bool) -> TokenTrace:
    """Trace a token after about ``context`` others, on this computer's CPU.

    Args:
        name: of the --synthetic model.
        n_layers: how many of its layers.
        context: tokens before it, up to three more or fewer.
        completes: a token that completes rows of four tokens, or one that does not.
    """
    from mlx_kernels.gpu.tracing import TracedOps, trace

    before = context // _RATIO * _RATIO + (_RATIO - 1 if completes else 0)
    ops = TracedOps()
    model = DeepseekV4Plan.of(_ShapesOnly(name, n_layers)).load(ops, None, None)
    cache = model.new_cache(before + _MORE_TOKENS)
    states = {
        f"layers.{i}.{key}": np.zeros(shape, dtype)
        for i, state in cache.states.items()
        for key, (shape, dtype) in state.expected(before).items()
    }
    cache.load(states, before)
    cache.arrays()  # evaluates what loading left to do
    token = np.zeros(1, np.int32)

    def logits(streams: Any) -> Any:
        return model.logits(model.layers(0, n_layers, streams, cache, token))

    launches: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for each in trace(logits, model.embed(token)):
        launches[each.name] += 1
        n_bytes[each.name] += _bytes(each, model.config.shape)
    return TokenTrace(n_layers, before, launches, n_bytes)


def _bytes(launched: Any, shape: NetworkShape) -> int:
    read, written = list(launched.inputs), sum(launched.outputs)
    if launched.name.startswith(("gate_up", "down")):
        # Whatever is larger than an expert's share of a megabyte is weights of all experts.
        read = [n * shape.n_used // shape.n_experts if n > 1 << 20 else n for n in read]
    elif launched.name.startswith("v4_attention"):
        n_chunks = launched.outputs[1] // (8 * shape.n_heads) - shape.window // _CHUNK
        read[_ROWS_INPUT] = min(read[_ROWS_INPUT], 2 * shape.head_dim * _CHUNK * n_chunks)
    elif launched.name.startswith("v4_route"):
        read[_TABLE_INPUT] = 4 * shape.n_used  # of the table one row
    elif launched.name == "SliceUpdate":
        return 2 * launched.inputs[1]  # the buffer stays where it is
    return sum(read) + written


def told(plain: TokenTrace, completing: TokenTrace) -> str:
    """A table of a token that completes no rows, and what one in four adds."""
    lines = [f"{'kernel or node':<24}{'launches':>9}{'a layer':>9}{'MB':>10}"]
    for name, n in sorted(plain.launches.items(), key=lambda item: -plain.n_bytes[item[0]]):
        n_bytes = plain.n_bytes[name]
        lines.append(f"{name:<24}{n:>9}{n / plain.n_layers:>9.2f}{n_bytes / 1e6:>10.1f}")
    n, n_bytes = plain.launches.total(), plain.n_bytes.total()
    lines.append(f"{'all':<24}{n:>9}{n / plain.n_layers:>9.2f}{n_bytes / 1e6:>10.1f}")
    more = completing.launches.total() - n
    lines.append(
        f"A token that completes rows of four tokens has {more} launches more: "
        f"{n + more / _RATIO:.0f} on average, {plain.n_layers} layers, context {plain.context}."
    )
    return "\n".join(lines)
