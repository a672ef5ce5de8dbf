"""The launches of one layer of DeepSeek V4 for one position, with its weights.

    attention     partials* · input · store and queries (· index scores · top-k)
                  · attention · combine · output a · output b
    feed-forward  partials* · input · route and shared down · experts (2)

* ``post_partials``: the write to the streams of the sublayer before is in the same launch.
"""

from typing import Any

import mlx.core as mx

from mlx_kernels.deepseek_v4_ops import HyperWeights, Layer, NetworkShape
from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, nothing, numbers
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels, Launch
from mlx_kernels.gpu.deepseek_v4.decode_rows import Rows, Way, rows_of
from mlx_kernels.gpu.planar_linear import StackedWeight
from mlx_kernels.gpu.planar_weight import PlanarWeight

_Q8_0 = 8
STREAM_COLUMNS = 64  # of a group of the kernels that write streams
_CHUNK = 32  # rows that a group of the attention takes
_HEADS = 8  # heads of such a group
_STORE_GROUPS = 64  # three that make rows, the others copy rings
_SCORE_GROUPS = 264
_MAX_COLUMNS = 8192  # 32 KiB of shared memory
_PART_COLUMNS = _MAX_COLUMNS  # of out_b, whose result may be left as a sum of two arrays
_HALF = mx.float16
_INPUT, _OUTPUT = Way(8, 1, 8), Way(8, 2, 4)
_OUTPUT_ROWS = _OUTPUT.simdgroups * _OUTPUT.at_once  # of a group, or a multiple
_QUERIES = Way(8, 4, 2)  # eight simdgroups, as those that store beside them


def packed_of(weight: Any, max_columns: int = _MAX_COLUMNS) -> PlanarWeight | None:
    """The one part of a matrix, if it is Q8_0 that the kernels can read."""
    if not isinstance(weight, StackedWeight) or len(weight.parts) != 1:
        return None
    part = weight.parts[0]
    if not isinstance(part, PlanarWeight) or part.type_id != _Q8_0:
        return None
    return part if part.shape[1] <= max_columns and part.shape[1] % 32 == 0 else None


def can_decode(layer: Layer) -> bool:
    """Whether the kernels serve a layer: shapes that they divide, Q8_0 and float16 weights.

    Otherwise a single position takes the steps of a prompt.
    """
    shape, weights, ffn = layer.shape, layer.attention, layer.feed_forward
    packed = (weights.input, weights.q_b, ffn.shared_gate_up, ffn.shared_down)
    exact = [layer.attn_hyper.fn, layer.ffn_hyper.fn, ffn.router]
    exact += [w for w in (weights.exact_input, weights.index_q_b) if w is not None]
    grouped = getattr(weights.out_a, "whole", None)
    return (
        all(packed_of(weight) is not None for weight in packed)
        and _can_read_output(weights.out_b)
        and grouped is not None
        and packed_of(grouped) is not None
        and all(weight.dtype == _HALF and weight.shape[1] % 32 == 0 for weight in exact)
        and shape.n_streams == 4
        and shape.n_embd % STREAM_COLUMNS == 0
        and shape.head_dim in (256, 512)
        and shape.n_rotary == 64
        and shape.index_dim == 128
        and shape.index_heads % 8 == 0
        and shape.index_heads <= 64
        and shape.window % _CHUNK == 0
        and shape.n_experts <= 512
        and shape.n_used <= 32
        and grouped.shape[0] // shape.n_groups % _OUTPUT_ROWS == 0
    )


def _can_read_output(weight: Any) -> bool:
    """Whether out_b can be read, whole or in two parts of its columns."""
    part = packed_of(weight, 2 * _PART_COLUMNS)
    if part is None or part.shape[1] <= _PART_COLUMNS:
        return part is not None
    return part.shape[1] % 64 == 0 and part.shape[0] % _OUTPUT_ROWS == 0


class Hyper:
    """Weights and numbers of one hyper-connection."""

    def __init__(self, hyper: HyperWeights, layer: Layer) -> None:
        shape = layer.shape
        self.fn, self.scale, self.base, self.norm = hyper.fn, hyper.scale, hyper.base, hyper.norm
        self.numbers = numbers(shape.eps, shape.hc_eps, float(shape.n_sinkhorn))


class DecodeLayer:
    """The launches of a layer. Shapes that change with the position are launched by ``kernels``."""

    def __init__(self, layer: Layer, kernels: DecodeKernels) -> None:
        self.layer, self.kernels = layer, kernels
        shape, weights, ffn = layer.shape, layer.attention, layer.feed_forward
        self.attn_hyper = Hyper(layer.attn_hyper, layer)
        self.ffn_hyper = Hyper(layer.ffn_hyper, layer)
        self.columns = integers(shape.n_embd)
        self.n_partials = n = shape.n_embd // STREAM_COLUMNS
        self._prepare_streams()

        self.input = self._rows(weights.input, weights.exact_input, _INPUT, n_partials=n)
        self.input_launch = self._hyper_launch(self.input, _INPUT)
        self.queries = self._rows(weights.q_b, weights.index_q_b, _QUERIES)
        self.eps = numbers(shape.eps)
        low_rows = weights.out_a.whole.shape[0] // shape.n_groups
        self.out_a = self._rows(weights.out_a.whole, None, _OUTPUT, part_rows=low_rows)
        self.out_a_launch = self._launch("v4_rows", self.out_a, weights.out_a.whole, _OUTPUT)
        self.n_parts = parts = -(-weights.out_b.shape[1] // _PART_COLUMNS)
        self.out_b = rows_of(
            packed_of(weights.out_b, 2 * _PART_COLUMNS), None, _OUTPUT, n_parts=parts
        )
        self.out_b_launch = self._launch("v4_rows", self.out_b, weights.out_b, _OUTPUT, parts)
        self._prepare_store()
        self._prepare_attention()

        self.ffn_input = self._rows(ffn.shared_gate_up, ffn.router, _INPUT, n_partials=n)
        self.ffn_input_launch = self._hyper_launch(self.ffn_input, _INPUT)
        self.shared_down = self._rows(ffn.shared_down, None, _OUTPUT)
        self._prepare_route()

    def _rows(self, packed: StackedWeight, halves: Any, way: Way, **more: int) -> Rows:
        return rows_of(packed_of(packed), halves, way, **more)

    def _launch(
        self, name: str, rows: Rows, weight: StackedWeight, way: Way, n_parts: int = 1
    ) -> Launch:
        return self.kernels.launch(
            name,
            way.template(weight.shape[1], n_parts),
            (rows.n_groups, 1),
            [(n_parts, rows.n_rows // n_parts)],
            threads=32 * way.simdgroups,
        )

    def _hyper_launch(self, rows: Rows, way: Way) -> Launch:
        width = self.layer.shape.n_embd
        return self.kernels.launch(
            "v4_hyper_rows",
            way.template(width),
            (1 + rows.n_groups, 1),  # the first one computes the mixing
            [(1, rows.n_rows), (1, width), (20,)],
            threads=32 * way.simdgroups,
        )

    def _prepare_streams(self) -> None:
        width, n = self.layer.shape.n_embd, self.n_partials
        launch, streams, partials = self.kernels.launch, (1, 4, width), (25, n)
        self.partials = launch("v4_partials", {"N_ROWS": 24}, (n, 1), [partials])
        self.post_partials = {
            has_second: launch(
                "v4_post_partials",
                {"HAS_SECOND": has_second, "N_ROWS": 24},
                (n, 1),
                [streams, partials],
            )
            for has_second in (False, True)
        }
        self.post = launch("v4_post", {"HAS_SECOND": True}, (n, 1), [streams])

    def _prepare_store(self) -> None:
        shape, ratio, weights = self.layer.shape, self.layer.ratio, self.layer.attention
        d, di, none = shape.head_dim, shape.index_dim, nothing(mx.float32)
        compressor, indexer = weights.compressor, weights.index_compressor
        self.store_weights = (
            *((compressor.ape, compressor.norm) if compressor else (none, none)),
            *((indexer.ape, indexer.norm) if indexer else (none, none)),
        )
        template = {"STORE_GROUPS": _STORE_GROUPS, "R": ratio, "D": d, "DI": di}
        template |= {"KV_AT": shape.query_rank, **_QUERIES.template(weights.q_b.shape[1])}

        def store(capacities: tuple[int, int, int]) -> Launch:
            w = (2 * d if ratio == 4 else d) if ratio else 0
            shapes = [
                (1, self.queries.n_rows),
                (capacities[0], d),
                (capacities[1], 2 * w) if ratio else (16,),
                (1, d) if ratio else (16,),
                (capacities[2], 4 * di) if ratio == 4 else (16,),
                (1, di) if ratio == 4 else (16,),
            ]
            dtypes = [*[mx.float32] * 3, _HALF, mx.float32, _HALF]
            groups = (_STORE_GROUPS + self.queries.n_groups, 1)
            return self.kernels.launch("v4_store_queries", template, groups, shapes, dtypes)

        self._store, self._bound = store, None

    def bind(self, capacities: tuple[int, int, int]) -> None:
        """Prepare for rings of window, frontier and indexer's frontier of these capacities."""
        if self._bound == capacities:
            return
        shape = self.layer.shape
        self._bound, self.store_launch = capacities, self._store(capacities)
        self.capacities = integers(*capacities)
        self.sizes = integers(shape.n_heads, capacities[0], shape.window)

    def _prepare_attention(self) -> None:
        shape = self.layer.shape
        at = shape.query_rank + 5 * shape.head_dim + 4 * shape.index_dim
        self.score_template = {
            "HEADS": shape.index_heads,
            "AT": shape.n_heads * shape.head_dim,
            "WEIGHTS_AT": at,
        }
        self.attention_numbers = numbers(shape.eps, (shape.index_dim * shape.index_heads) ** -0.5)
        if self.layer.ratio == 4:
            self.top_k = self.kernels.launch(
                "v4_top_k", {"K": shape.top_k}, (1, 1), [(shape.top_k,)], [mx.int32], threads=1024
            )
        self.combine = self.kernels.launch(
            "v4_combine",
            {"D": shape.head_dim},
            (shape.n_heads, 1),
            [(1, shape.n_heads * shape.head_dim)],
        )

    def index_scores(self, n_groups: int, capacity: int) -> Launch:
        """The launch of so many groups for a buffer of ``capacity`` rows."""
        launch = self.kernels.launch
        return launch("v4_index_scores", self.score_template, (n_groups, 1), [(capacity,)])

    def attention(self, n_chunks: int, has_index: bool) -> Launch:
        """The launch for so many chunks of rows (see ``n_chunks``)."""
        shape = self.layer.shape
        return self.kernels.launch(
            "v4_attention",
            {"D": shape.head_dim, "HAS_INDEX": has_index},
            (n_chunks, -(-shape.n_heads // _HEADS)),
            [(n_chunks, shape.n_heads, shape.head_dim), (n_chunks, shape.n_heads, 2)],
        )

    def n_score_groups(self, n_rows: int) -> int:
        """Groups that score ``n_rows``: they stride over tiles, so a power of two will do, which
        few tokens change."""
        return min(_SCORE_GROUPS, 1 << (-(-n_rows // 32) - 1).bit_length())

    def n_chunks(self, n_far: int) -> int:
        """Chunks of rows: those of the window, and of ``n_far`` compressed rows."""
        return self.layer.shape.window // _CHUNK + -(-n_far // _CHUNK)

    def _prepare_route(self) -> None:
        shape, ffn = self.layer.shape, self.layer.feed_forward
        has_table, width = ffn.table is not None, ffn.shared_down.shape[1]
        self.route = self.kernels.launch(
            "v4_route_swiglu_rows",
            {
                **{"AT": ffn.shared_gate_up.shape[0], "E": shape.n_experts, "K": shape.n_used},
                **{"HAS_TABLE": has_table, **_OUTPUT.template(width)},
            },
            (1 + self.shared_down.n_groups, 1),  # the first one routes
            [(1, self.shared_down.n_rows), (1, shape.n_used), (1, shape.n_used)],
            [mx.float32, mx.int32, mx.float32],
            threads=32 * _OUTPUT.simdgroups,
        )
        self.bias = nothing(mx.float32) if ffn.bias is None else ffn.bias
        self.table = ffn.table if has_table else nothing(mx.int32)
        self.route_numbers = numbers(ffn.clamp, shape.expert_scale)


class DecodeHead:
    """The launches that mix the streams before the output matrix."""

    def __init__(self, shape: NetworkShape, scale: mx.array, kernels: DecodeKernels) -> None:
        width = shape.n_embd
        # One number: see ``mlx_kernels.gpu.constants``.
        self.given, self.scale = scale, numbers(float(scale.item()))
        n = width // STREAM_COLUMNS
        self.columns, self.sizes = integers(width), integers(width, n)
        self.numbers = numbers(shape.eps, shape.hc_eps)
        self.partials = kernels.launch("v4_partials", {"N_ROWS": 4}, (n, 1), [(5, n)])
        self.mix = kernels.launch("v4_head_mix", {}, (-(-width // 256), 1), [(1, width)])
