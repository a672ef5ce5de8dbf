"""The tensors of a DeepSeek V4 file, and what is checked before any of them is loaded.

The type of each tensor is read from the file, never from the name of a recipe: layers may differ,
and other producers choose other types. Only what is computed in pairs must agree.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from engine.errors import ModelFileError
from engine.families.deepseek_v4.config import DeepseekV4Config
from engine.families.loading import TensorNeed
from engine.gguf_file import GgufFile
from mlx_kernels.blocks import BLOCK, can_dequantize

EMBEDDING = "token_embd.weight"
HEAD = ("output_hc_fn", "output_hc_scale", "output_hc_base", "output_norm", "output")
_I32 = 26
_TABLE = "ffn_gate_tid2eid"
_HINT = "Use a DeepSeek V4 file of antirez/deepseek-v4-gguf, or ask for this one to be supported."


@dataclass(frozen=True, slots=True)
class Part:
    """A run of layers, with or without what comes before and after them."""

    first: int
    last: int  # exclusive
    has_embedding: bool = True
    has_head: bool = True


def needs(config: DeepseekV4Config, part: Part) -> Iterator[TensorNeed]:
    """Every tensor of a part of the network, rows first."""
    shape = config.shape
    streams, d = shape.n_streams, shape.n_embd
    if part.has_embedding:
        yield TensorNeed(EMBEDDING, (config.n_vocab, d))
    if part.has_head:
        yield TensorNeed("output_hc_fn.weight", (streams, streams * d))
        yield TensorNeed("output_hc_scale.weight", (1,))
        yield TensorNeed("output_hc_base.weight", (streams,))
        yield TensorNeed("output_norm.weight", (d,))
        yield TensorNeed("output.weight", (config.n_vocab, d))
    for i in range(part.first, part.last):
        for name, dimensions in _layer(config, i).items():
            ending = "bias" if name == "exp_probs_b" else "weight"
            yield TensorNeed(f"blk.{i}.{name}.{ending}", dimensions)


def _layer(config: DeepseekV4Config, layer_idx: int) -> dict[str, tuple[int, ...]]:
    shape, ratio = config.shape, config.ratios[layer_idx]
    h, d, head, rank = shape.n_streams, shape.n_embd, shape.head_dim, shape.query_rank
    width, low = shape.n_heads * head, shape.n_groups * config.output_rank
    experts, ff = shape.n_experts, config.n_ff
    layer: dict[str, tuple[int, ...]] = {}
    for sub in ("attn", "ffn"):
        layer[f"hc_{sub}_fn"] = (h * (h + 2), h * d)
        layer[f"hc_{sub}_scale"] = (3,)
        layer[f"hc_{sub}_base"] = (h * (h + 2),)
        layer[f"{sub}_norm"] = (d,)
    layer |= {
        "attn_q_a": (rank, d),
        "attn_q_a_norm": (rank,),
        "attn_q_b": (width, rank),
        "attn_kv": (head, d),
        "attn_kv_a_norm": (head,),
        "attn_sinks": (shape.n_heads,),
        "attn_output_a": (low, width // shape.n_groups),
        "attn_output_b": (d, low),
    }
    if ratio:
        layer |= _compressor("attn_compressor", ratio, head, d)
    if ratio == 4:
        layer |= _compressor("indexer_compressor", ratio, shape.index_dim, d)
        layer["indexer.attn_q_b"] = (shape.index_heads * shape.index_dim, rank)
        layer["indexer.proj"] = (shape.index_heads, d)
    layer["ffn_gate_inp"] = (experts, d)
    if layer_idx < config.n_hash_layers:
        layer[_TABLE] = (config.n_vocab, shape.n_used)
    else:
        layer["exp_probs_b"] = (experts,)
    layer |= {
        "ffn_gate_exps": (experts, ff, d),
        "ffn_up_exps": (experts, ff, d),
        "ffn_down_exps": (experts, d, ff),
        "ffn_gate_shexp": (ff, d),
        "ffn_up_shexp": (ff, d),
        "ffn_down_shexp": (d, ff),
    }
    return layer


def _compressor(name: str, ratio: int, width: int, d: int) -> dict[str, tuple[int, ...]]:
    w = 2 * width if ratio == 4 else width
    return {
        f"{name}_kv": (w, d),
        f"{name}_gate": (w, d),
        f"{name}_ape": (ratio, w),
        f"{name}_norm": (width,),
    }


def check_part(gguf: GgufFile, config: DeepseekV4Config, part: Part) -> None:
    """Check that the file holds a part of the network in types that can be computed with.

    Raises:
        ModelFileError: a tensor is missing, of another shape or type, or one too many.
    """
    _check_layers(gguf, part)
    names = set()
    for need in needs(config, part):
        info = gguf.require(need.name, need.shape)
        is_table = _TABLE in need.name
        if info.type_id != _I32 if is_table else not can_dequantize(info.type_id):
            raise ModelFileError(
                f"tensor {need.name} of {gguf.path.name} has type {BLOCK[info.type_id].name}, "
                + ("expected I32" if is_table else "which is not computed with"),
                _HINT,
            )
        names.add(need.name)
    for i in range(part.first, part.last):
        gate, up = (gguf.tensors[f"blk.{i}.ffn_{p}_exps.weight"].type_id for p in ("gate", "up"))
        if gate != up:
            raise ModelFileError(
                f"layer {i} of {gguf.path.name} has gate experts of type {BLOCK[gate].name} and up "
                f"experts of {BLOCK[up].name}, expected one type",
                _HINT,
            )
        if i < config.n_hash_layers:
            _check_table(gguf, config, i)
    _check_unknown(gguf, config, names)


def _check_layers(gguf: GgufFile, part: Part) -> None:
    """Name missing layers as such: a file for a pipeline holds only some."""
    present = {int(p[1]) for name in gguf.tensors if (p := name.split("."))[0] == "blk"}
    missing = [i for i in range(part.first, part.last) if i not in present]
    if not missing:
        return
    raise ModelFileError(
        f"{gguf.path.name} holds layers {_runs(present)}, "
        f"but {_runs(missing)} of {part.first}-{part.last - 1} are missing",
        "Use the whole model: this is one part of it for several computers.",
    )


def _runs(numbers: Iterable[int]) -> str:
    """Write numbers as "0-30, 33"; "none" when there are none."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs) or "none"


def _check_table(gguf: GgufFile, config: DeepseekV4Config, layer_idx: int) -> None:
    """Check the experts of every token id: no device looks at them again."""
    name = f"blk.{layer_idx}.{_TABLE}.weight"
    ids = gguf.data(name).view(np.int32)
    if ids.min() < 0 or ids.max() >= config.shape.n_experts:
        raise ModelFileError(
            f"tensor {name} of {gguf.path.name} names experts {ids.min()} to {ids.max()}, "
            f"expected 0 to {config.shape.n_experts - 1}",
            "Download the file again and check its hash.",
        )


def _check_unknown(gguf: GgufFile, config: DeepseekV4Config, names: set[str]) -> None:
    """Refuse tensors of no part of the network: it would be computed without them."""
    whole = {need.name for need in needs(config, Part(0, config.n_layers))}
    # The draft block of multi-token prediction only proposes tokens.
    unknown = sorted(n for n in gguf.tensors.keys() - names - whole if not n.startswith("mtp."))
    if unknown:
        raise ModelFileError(
            f"{gguf.path.name} has {len(unknown)} tensors that DeepSeek V4 does not have, "
            f"such as {unknown[0]}",
            _HINT,
        )
