"""The operations that only DeepSeek V4 needs, and the weights of one of its layers.

They are cut where few launches suffice on a GPU: each is a step of a sublayer that a world may
compute in one or two kernels, or, as the plain versions do, in many array operations. In order:

    attention     hc_pre · project · store · queries · select · attention · output
    feed-forward  hc_pre · route · feed_forward

A network calls the two sublayers, ``attention_sublayer`` and ``feed_forward_sublayer``; these are
their steps, in ``deepseek_v4_sublayers.py``. A world may have fewer steps for a decoded position.

Precision. Everything that decides what is stored or chosen (hyper-connections, compressor, indexer,
router) is a product of float32 activations with float weights, summed in float32: an *exact*
matrix. The other matrices are those of ``Ops.matrix``, whose products may round activations.

Axes: T positions, h residual streams, D their width, H query heads, d values of a head, R tokens of
a compressed row, N compressed rows, Hi and di heads and width of the indexer, E experts, K experts
a token, F width of an expert, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlx_kernels.blocks import PackedMatrix

Array = Any  # numpy.ndarray in the cpu world, mlx.core.array in the gpu world
Mix = Any  # what ``hc_pre`` returns for ``output`` and ``feed_forward``
Selection = Any  # what ``select`` returns for ``attention``

# Rings keep this many positions more than the network looks back to, so that a state can go back
# by as much: enough for a draft of several tokens, and 5 MB for V4 Flash.
SLACK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """The numbers that all layers share."""

    n_streams: int  # h
    n_embd: int  # D
    n_heads: int  # H
    head_dim: int  # d, of a key that is the value too
    n_rotary: int  # the last values of a head that turn
    query_rank: int  # Rq
    n_groups: int  # G, of the output projection
    window: int  # W, the query's own position included
    index_heads: int  # Hi
    index_dim: int  # di
    top_k: int  # compressed rows that the indexer selects
    n_experts: int  # E
    n_used: int  # K
    expert_scale: float
    n_sinkhorn: int
    eps: float
    hc_eps: float


@dataclass(frozen=True, slots=True)
class HyperWeights:
    """A hyper-connection and the norm of the sublayer behind it."""

    fn: Array  # exact [h (h + 2), h D]: what is read, what is written, how streams mix
    scale: Array  # [3]
    base: Array  # [h (h + 2)]
    norm: Array  # [D]


@dataclass(frozen=True, slots=True)
class CompressorWeights:
    """What pools R tokens to a row; its projections are in ``AttentionWeights.exact_input``."""

    ape: Array  # [R, w]: score by place in the group; w = 2 width at R = 4, else width
    norm: Array  # [width]


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Matrices that read the same input are one: q_a and kv; compressor, then indexer."""

    input: Array  # [Rq + d, D]
    exact_input: Array | None  # exact [2 w (+ 4 di + Hi), D]: kv, gate (, kv, gate, weights)
    q_norm: Array  # [Rq]
    q_b: Array  # [H d, Rq]
    kv_norm: Array  # [d]
    sinks: Array  # [H]
    out_a: Array  # grouped [G, Ro, H d / G]
    out_b: Array  # [D, G Ro]
    compressor: CompressorWeights | None  # R > 0
    index_q_b: Array | None  # exact [Hi di, Rq], R = 4
    index_compressor: CompressorWeights | None  # R = 4


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """Router and experts. ``table`` in the first layers, ``bias`` in the others."""

    router: Array  # exact [E, D]
    bias: Array | None  # [E], for the choice only
    table: Array | None  # [V, K] int32: the experts of a token id
    experts: Any
    shared_gate_up: Array  # [2 F, D]
    shared_down: Array  # [D, F]
    clamp: float


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer."""

    shape: NetworkShape
    ratio: int  # R: 0 (window only), 4 (with indexer) or 128
    frequencies: np.ndarray  # [n_rotary / 2] float64, radians a position
    attn_hyper: HyperWeights
    attention: AttentionWeights
    ffn_hyper: HyperWeights
    feed_forward: FeedForwardWeights


@dataclass(frozen=True, slots=True)
class Projections:
    """The products of the attention's input."""

    q_rank: Array  # [T, Rq], not normalised
    kv: Array  # [T, d], not normalised
    compressor: Array | None  # [T, 2 w]: values, then scores without ape
    index_compressor: Array | None  # [T, 4 di]
    index_weights: Array | None  # [T, Hi]


class LayerState(Protocol):
    """What one layer keeps of the past.

    The last W rows, the compressed rows and, at R = 4, those of the indexer, rounded as the
    network was trained; and the *frontier*: values and scores of the tokens whose group is not
    complete yet, at R = 4 also of the group before.
    """

    n_tokens: int

    def can_truncate(self, n_tokens: int) -> bool:
        """Whether the state of an earlier position, or of none, is still there."""

    def truncate(self, n_tokens: int) -> None:
        """Go back to a position, after ``can_truncate``. A later one does nothing."""

    def expected(self, n_tokens: int) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return the names of ``arrays`` at a position, with their shapes and types."""

    def settled(self, n_tokens: int) -> dict[str, int]:
        """Return the names of ``arrays`` that only grow, with their rows at a position. Later
        tokens don't change these rows; the other arrays change as a whole."""

    def arrays(self, kept: int = 0) -> dict[str, np.ndarray]:
        """Return host copies, without the rows that are settled at position ``kept``.

        ``window`` [min(n, W), d], oldest first; ``compressed`` [n // R, d]; ``compressor.kv`` and
        ``compressor.score`` float32 [R or 2 R, w]; at R = 4 ``indexer.compressed`` [n // 4, di],
        ``indexer.compressor.kv`` and ``.score``. Rows are float16 (float32 with the rounding
        off). Scores include ape. At R = 4 rows 0 to 3 of a frontier are the group before; places
        without a token hold 0 and a score of -1e30.
        """

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int) -> None:
        """Replace the state. Names and shapes are those of ``arrays`` at that position."""


class DeepseekV4Ops(Protocol):
    """The operations of one device."""

    def exact_matrix(self, parts: Sequence[PackedMatrix]) -> Array:
        """Take over matrices of equal width as one for exact products."""

    def exact_matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """Memory that ``exact_matrix`` takes."""

    def experts_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """Memory that ``Ops.experts`` takes of one of its three matrices."""

    def grouped_matrix(self, matrix: PackedMatrix, n_groups: int) -> Array:
        """Take over [G Ro, in / G]: rows g Ro to (g + 1) Ro read part g of the input."""

    def exact_linear(self, x: Array, weight: Array) -> Array:
        """x [T, in] times an exact matrix -> [T, out]."""

    def integers(self, table: np.ndarray) -> Array:
        """Hand over a table of int32."""

    def layer_state(
        self, shape: NetworkShape, ratio: int, max_tokens: int, rounds: bool
    ) -> LayerState:
        """Make an empty state; ``rounds`` off is for comparisons with unrounded networks."""

    def state_bytes(self, shape: NetworkShape, ratio: int, n_tokens: int) -> int:
        """Memory of a layer's state."""

    def streams(self, embedded: Array, n_streams: int) -> Array:
        """Copy embedded tokens [T, D] to every stream -> [T, h, D]."""

    def attention_sublayer(self, streams: Array, layer: Layer, state: LayerState) -> Array:
        """Add what earlier positions say to the streams [T, h, D], and append T positions.

        What this and ``feed_forward_sublayer`` return is for the other, and for ``settle``.
        """

    def feed_forward_sublayer(self, streams: Array, layer: Layer, token_ids: np.ndarray) -> Array:
        """Add what follows from each position by itself; ``token_ids`` [T] int32."""

    def settle(self, streams: Array) -> Array:
        """Return the streams [T, h, D] after the last sublayer of a run."""

    def close(self) -> None:
        """Give back what was kept for later positions. To be called by the thread that computed."""

    def hc_pre(self, streams: Array, hyper: HyperWeights, shape: NetworkShape) -> tuple[Array, Mix]:
        """Mix the streams [T, h, D] to a sublayer's normalised input [T, D]."""

    def project(self, x: Array, layer: Layer) -> Projections:
        """Multiply the attention's input [T, D] with all that reads it."""

    def store(self, projections: Projections, layer: Layer, state: LayerState) -> None:
        """Append T positions: window rows, and the compressed rows that they complete."""

    def queries(
        self, projections: Projections, layer: Layer, state: LayerState
    ) -> tuple[Array, Array | None]:
        """Make the turned queries [T, H, d] and, at R = 4, those of the indexer [T, Hi, di].

        The T positions are the last ones of the state.
        """

    def select(
        self,
        index_queries: Array | None,
        projections: Projections,
        layer: Layer,
        state: LayerState,
    ) -> Selection:
        """Choose the compressed rows that each of the last T positions reads.

        At R = 4 the ``top_k`` best, the lowest index first among equals; else all complete ones.
        """

    def selected_rows(self, selection: Selection, n_positions: int) -> list[np.ndarray]:
        """Return the chosen row indices of each position, ascending. For tests."""

    def attention(
        self, queries: Array, selection: Selection, layer: Layer, state: LayerState
    ) -> Array:
        """Attend over window, selected rows and sink, and turn back -> [T, H d]."""

    def output(self, mixed: Array, layer: Layer, streams: Array, mix: Mix) -> Array:
        """Project attention's result [T, H d] and write it to the streams -> [T, h, D]."""

    def route(self, x: Array, layer: Layer, token_ids: np.ndarray) -> tuple[Array, Array]:
        """Choose experts for x [T, D] -> ids [T, K] int32, weights [T, K] float32."""

    def feed_forward(
        self, x: Array, ids: Array, weights: Array, layer: Layer, streams: Array, mix: Mix
    ) -> Array:
        """Run routed and shared experts on x [T, D], write to the streams -> [T, h, D]."""

    def logits(self, x: Array, norm: Array, eps: float, output: Array) -> Array:
        """Norm and output matrix of x [T, D] -> [T, V]."""

    def hc_head(
        self, streams: Array, fn: Array, scale: Array, base: Array, shape: NetworkShape
    ) -> Array:
        """Mix the streams [T, h, D] to one [T, D] before the output matrix."""
