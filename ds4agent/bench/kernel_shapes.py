"""Named sets of shapes for ``ds4-bench kernels``: those that a real network multiplies with."""

from collections.abc import Sequence

from ds4agent.bench.kernel_cases import Case
from ds4agent.errors import Ds4Error
from mlx_kernels.blocks import BLOCK, can_dequantize

_TYPES = {block.name: type_id for type_id, block in BLOCK.items() if can_dequantize(type_id)}

# operation, tensor, types of the published file ("gate and up/down" for moe), shape
_Shape = tuple[str, str, str, tuple[int, ...]]

# DeepSeek V4 Flash: width 4096, 64 heads of 512 with one key-value head, query rank 1024, eight
# output groups of rank 1024, 256 experts of width 2048 of which 6 are used, vocabulary 129,280.
_V4_FLASH: tuple[_Shape, ...] = (
    ("linear", "attn_q_a", "Q8_0", (1024, 4096)),
    ("linear", "attn_q_b", "Q8_0", (32768, 1024)),
    ("linear", "attn_kv", "Q8_0", (512, 4096)),
    # eight groups of 1024 rows; each has inputs of its own, the bytes are those of one matrix
    ("linear", "attn_output_a", "Q8_0", (8192, 4096)),
    ("linear", "attn_output_b", "Q8_0", (4096, 8192)),
    ("linear", "ffn_gate_up_shexp", "Q8_0", (4096, 4096)),
    ("linear", "ffn_down_shexp", "Q8_0", (4096, 2048)),
    ("linear", "output", "Q8_0", (129280, 4096)),
    ("linear", "attn_compressor_kv", "F16", (1024, 4096)),
    ("linear", "indexer.attn_q_b", "F16", (8192, 1024)),
    ("linear", "indexer.proj", "F16", (64, 4096)),
    ("linear", "indexer_compressor_kv", "F16", (256, 4096)),
    ("linear", "ffn_gate_inp", "F16", (256, 4096)),
    ("linear", "hc_attn_fn", "F16", (24, 16384)),
    ("moe", "ffn_exps (q2)", "IQ2_XXS/Q2_K", (256, 6, 4096, 2048)),
    ("moe", "ffn_exps (q4)", "Q4_K/Q4_K", (256, 6, 4096, 2048)),
    ("moe", "ffn_exps (mxfp4)", "MXFP4/MXFP4", (256, 6, 4096, 2048)),
    ("embedding", "token_embd", "F16", (129280, 4096)),
    ("attention", "window", "", (64, 1, 512, 128)),
    ("rms_norm", "attn_norm", "", (4096,)),
    ("swiglu", "ffn_shexp", "", (4096,)),
)

# Qwen2.5 1.5B, Q4_K_M: width 1536, 12 heads of 128 with two key-value heads, hidden width 8960.
_QWEN_1_5B: tuple[_Shape, ...] = (
    ("linear", "attn_qkv", "Q4_K", (2048, 1536)),
    ("linear", "attn_output", "Q4_K", (1536, 1536)),
    ("linear", "ffn_gate_up", "Q4_K", (17920, 1536)),
    ("linear", "ffn_down", "Q6_K", (1536, 8960)),
    ("linear", "ffn_down", "Q4_K", (1536, 8960)),
    ("linear", "output", "Q6_K", (151936, 1536)),
    ("embedding", "token_embd", "Q6_K", (151936, 1536)),
    ("attention", "512 rows", "", (12, 2, 128, 512)),
    ("attention", "4096 rows", "", (12, 2, 128, 4096)),
    ("rope", "queries", "", (12, 128)),
    ("rms_norm", "attn_norm", "", (1536,)),
    ("swiglu", "ffn", "", (17920,)),
)

# Every type and operation once, in a second or two each: a quick look, and the tests'.
_SMALL: tuple[_Shape, ...] = (
    *(("linear", "matrix", name, (512, 512)) for name in _TYPES),
    *(("dequantize", "matrix", name, (512, 512)) for name in _TYPES),
    ("embedding", "table", "Q8_0", (1024, 512)),
    ("moe", "experts", "IQ2_XXS/Q2_K", (8, 2, 256, 256)),
    ("attention", "256 rows", "", (8, 2, 64, 256)),
    ("rope", "queries", "", (8, 64)),
    ("rms_norm", "norm", "", (512,)),
    ("swiglu", "ffn", "", (1024,)),
)

SHAPE_SETS = {"v4-flash": _V4_FLASH, "qwen-1.5b": _QWEN_1_5B, "small": _SMALL}


def cases(
    shapes: str, operations: Sequence[str], types: Sequence[str], positions: Sequence[int]
) -> list[Case]:
    """Return the cases of a named set.

    Args:
        shapes: key of ``SHAPE_SETS``.
        operations: only these; all when empty.
        types: each matrix with each of these types in place of its own (moe: of all three
            matrices); operations without weights are left out. The set's own types when empty.
        positions: numbers of positions; each gives a case.

    Raises:
        Ds4Error: a type is unknown or has no decoder, or nothing is left.
    """
    for name in types:
        if name not in _TYPES:
            raise Ds4Error(f"unknown type {name!r}", f"Use some of {', '.join(_TYPES)}.")
    found: dict[Case, None] = {}  # a set that keeps the order
    for op, tensor, own, shape in SHAPE_SETS[shapes]:
        if operations and op not in operations or types and not own:
            continue
        for name in types or [own]:
            type_ids = tuple(_TYPES[each] for each in name.split("/") if each)
            for n_positions in positions:
                if op == "attention" and n_positions > shape[-1]:
                    continue  # the buffer holds the positions that ask
                case = Case(op, tensor.split(" (")[0], type_ids, shape, n_positions)
                if all(_fits(type_id, case) for type_id in type_ids):
                    found[case] = None
    if not found:
        raise Ds4Error(
            f"no operation of the set {shapes} is left", "Name other --op, --type or --positions."
        )
    return list(found)


def _fits(type_id: int, case: Case) -> bool:
    """True when rows are whole blocks."""
    widths = case.shape[2:] if case.op == "moe" else case.shape[1:]
    return all(width % BLOCK[type_id].n_values == 0 for width in widths)
