"""DeepSeek V4 in NumPy float64: a whole text at once, from the published description.

Four residual streams run through the layers. Each sublayer reads a learned mixture of them and
writes back through a doubly stochastic matrix (*hyper-connections*). Attention keeps one row a
token that is key and value at once: the last W rows as they are, older ones pooled, R tokens to
a row (*compressor*). At R = 4 only the rows that score best are read (*indexer*). The feed-forward
part is a mixture of experts; in the first layers the token's id chooses the experts.

Weights are float64 arrays by their names in a GGUF file, rows first. Axes: T positions, D hidden,
H heads, d head, h streams, R tokens of a compressed row, E experts.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.cache_rounding import fp4_blocks_of_32, fp8_blocks_of_64, hadamard


@dataclass
class Shape:
    """The numbers of a network that its weights do not tell."""

    ratios: list[int]  # R of each layer; 0: window only
    n_heads: int
    head_dim: int
    n_groups: int
    n_used: int  # experts a token
    n_index_heads: int
    index_dim: int
    top_k: int
    window: int
    expert_scale: float
    clamp: float
    n_hash_layers: int
    n_rotary: int = 64
    n_streams: int = 4
    n_sinkhorn: int = 20
    eps: float = 1e-6
    hc_eps: float = 1e-6


@dataclass
class Trace:
    """What a run looked like inside, by layer."""

    hidden: dict[int, np.ndarray] = field(default_factory=dict)  # [T, h, D] after the layer
    experts: dict[int, np.ndarray] = field(default_factory=dict)  # [T, K]
    selected: dict[int, list[np.ndarray]] = field(default_factory=dict)  # rows by position
    window: dict[int, np.ndarray] = field(default_factory=dict)  # [T, d]
    compressed: dict[int, np.ndarray] = field(default_factory=dict)  # [T // R, d]
    indexed: dict[int, np.ndarray] = field(default_factory=dict)  # [T // 4, di]


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rms(x, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def frequencies(ratio: int, n_rotary: int = 64) -> np.ndarray:
    """Radians a position of each rotary pair; with compression, YaRN on a base of 160000."""
    pair = np.arange(n_rotary // 2)
    if not ratio:
        return 10000.0 ** (-2 * pair / n_rotary)
    plain = 160000.0 ** (-2 * pair / n_rotary)

    def pair_that_turns(times):
        return n_rotary * np.log(65536 / (times * 2 * np.pi)) / (2 * np.log(160000.0))

    low, high = np.floor(pair_that_turns(32)), np.ceil(pair_that_turns(1))
    keep = 1 - np.clip((pair - low) / (high - low), 0, 1)
    return plain * keep + plain / 16 * (1 - keep)


def turn(x, positions, omega):
    """Rotate the last 2 * len(omega) values of x [T, ..., d] by position; pairs are neighbours."""
    n = 2 * len(omega)
    angle = positions.reshape(-1, *[1] * (x.ndim - 1)) * omega
    a, b = x[..., -n::2], x[..., -n + 1 :: 2]
    out = x.copy()
    out[..., -n::2] = a * np.cos(angle) - b * np.sin(angle)
    out[..., -n + 1 :: 2] = a * np.sin(angle) + b * np.cos(angle)
    return out


def sinkhorn(a, n_iterations, eps):
    """Make [..., 4, 4] doubly stochastic: softmax of rows, then columns and rows in turn."""
    a = np.exp(a - a.max(-1, keepdims=True))
    a = a / a.sum(-1, keepdims=True) + eps
    a = a / (a.sum(-2, keepdims=True) + eps)
    for _ in range(n_iterations - 1):
        a = a / (a.sum(-1, keepdims=True) + eps)
        a = a / (a.sum(-2, keepdims=True) + eps)
    return a


def mixes(m, scale, base, shape: Shape):
    """Split 24 raw numbers a token into what a sublayer reads, writes, and how streams mix."""
    h = shape.n_streams
    pre = sigmoid(m[..., :h] * scale[0] + base[:h]) + shape.hc_eps
    post = 2 * sigmoid(m[..., h : 2 * h] * scale[1] + base[h : 2 * h])
    comb = (m[..., 2 * h :] * scale[2] + base[2 * h :]).reshape(*m.shape[:-1], h, h)
    return pre, post, sinkhorn(comb, shape.n_sinkhorn, shape.hc_eps)


class Oracle:
    """A network; ``run`` gives the logits after every token."""

    def __init__(self, weights: dict, shape: Shape, rounds: bool = True, rounds_f16: bool = False):
        """``rounds``: FP8 and FP4 of cached rows; ``rounds_f16``: and then float16."""
        self.w, self.shape, self.rounds, self.rounds_f16 = weights, shape, rounds, rounds_f16

    def run(self, tokens, trace: Trace | None = None):
        """Return logits [T, V]."""
        streams = self.streams(tokens, trace)
        return self.head(streams)

    def streams(self, tokens, trace: Trace | None = None):
        """Return the streams before the head, [T, h, D]."""
        tokens = np.asarray(tokens)
        streams = np.repeat(self.w["token_embd.weight"][tokens][:, None], self.shape.n_streams, 1)
        for layer in range(len(self.shape.ratios)):
            streams = self.layer(layer, streams, tokens, trace)
        return streams

    def head(self, streams, hc="output_hc", norm="output_norm.weight"):
        w, eps = self.w, self.shape.eps
        m = rms(streams.reshape(len(streams), -1), eps) @ w[f"{hc}_fn.weight"].T
        mix = sigmoid(m * w[f"{hc}_scale.weight"] + w[f"{hc}_base.weight"]) + self.shape.hc_eps
        u = np.einsum("ti,tid->td", mix, streams)
        return (rms(u, eps) * w[norm]) @ w["output.weight"].T

    def layer(self, layer, streams, tokens, trace=None, prefix=None):
        prefix = prefix or f"blk.{layer}."
        w = {name[len(prefix) :]: a for name, a in self.w.items() if name.startswith(prefix)}
        ratio = self.shape.ratios[layer] if layer < len(self.shape.ratios) else 0
        for sub in ("attn", "ffn"):
            flat = rms(streams.reshape(len(streams), -1), self.shape.eps)
            pre, post, comb = mixes(
                flat @ w[f"hc_{sub}_fn.weight"].T,
                w[f"hc_{sub}_scale.weight"],
                w[f"hc_{sub}_base.weight"],
                self.shape,
            )
            u = np.einsum("ti,tid->td", pre, streams)
            x = rms(u, self.shape.eps) * w[f"{sub}_norm.weight"]
            if sub == "attn":
                y = self.attention(w, x, ratio, layer, trace)
            else:
                y = self.experts(w, x, tokens, layer, trace)
            streams = post[:, :, None] * y[:, None] + np.einsum("tab,tad->tbd", comb, streams)
        if trace is not None:
            trace.hidden[layer] = streams
        return streams

    def stored(self, row):
        return row.astype(np.float16).astype(np.float64) if self.rounds_f16 else row

    def kv_row(self, row):
        if self.rounds:
            n = row.shape[-1] - self.shape.n_rotary
            row = np.concatenate([fp8_blocks_of_64(row[..., :n]), row[..., n:]], -1)
        return self.stored(row)

    def index_row(self, row):
        return fp4_blocks_of_32(hadamard(row)) if self.rounds else row

    def compress(self, x, w, name, ratio, width):
        """Pool each R tokens to a row, channel by channel: [T, D] -> [T // R, width]."""
        kv = x @ w[f"{name}_kv.weight"].T
        ape = w[f"{name}_ape.weight"]
        score = x @ w[f"{name}_gate.weight"].T + ape[np.arange(len(x)) % ratio]
        rows = []
        for c in range(len(x) // ratio):
            own = slice(c * ratio, (c + 1) * ratio)
            if ratio == 4:
                values, scores = [kv[own, width:]], [score[own, width:]]
                if c:
                    before = slice((c - 1) * ratio, c * ratio)
                    values.insert(0, kv[before, :width])
                    scores.insert(0, score[before, :width])
                value, s = np.concatenate(values), np.concatenate(scores)
            else:
                value, s = kv[own], score[own]
            weight = np.exp(s - s.max(0))
            rows.append((weight * value).sum(0) / weight.sum(0))
        pooled = np.array(rows).reshape(-1, width)
        row = rms(pooled, self.shape.eps) * w[f"{name}_norm.weight"]
        return turn(row, np.arange(len(row)) * ratio, frequencies(ratio))

    def attention(self, w, x, ratio, layer, trace):
        s = self.shape
        positions, omega = np.arange(len(x)), frequencies(ratio, s.n_rotary)
        qr = rms(x @ w["attn_q_a.weight"].T, s.eps) * w["attn_q_a_norm.weight"]
        q = (qr @ w["attn_q_b.weight"].T).reshape(len(x), s.n_heads, s.head_dim)
        q = turn(rms(q, s.eps), positions, omega)
        kv = rms(x @ w["attn_kv.weight"].T, s.eps) * w["attn_kv_a_norm.weight"]
        kv = self.kv_row(turn(kv, positions, omega))
        pooled = np.zeros((0, s.head_dim))
        if ratio:
            pooled = self.kv_row(self.compress(x, w, "attn_compressor", ratio, s.head_dim))
        visible = self.visible_rows(w, x, qr, ratio, layer, trace)
        out = np.zeros_like(q)
        for p in positions:
            rows = np.concatenate([kv[max(0, p - s.window + 1) : p + 1], pooled[visible[p]]])
            score = q[p] @ rows.T / np.sqrt(s.head_dim)  # [H, N]
            sink = w["attn_sinks.weight"][:, None]
            top = np.maximum(score.max(1, keepdims=True), sink)
            weight = np.exp(score - top)
            out[p] = weight @ rows / (np.exp(sink - top) + weight.sum(1, keepdims=True))
        out = turn(out, -positions, omega)
        per_group = out.reshape(len(x), s.n_groups, -1)
        wa = w["attn_output_a.weight"].reshape(s.n_groups, -1, per_group.shape[-1])
        low = np.einsum("tgi,goi->tgo", per_group, wa).reshape(len(x), -1)
        if trace is not None:
            trace.window[layer], trace.compressed[layer] = kv, pooled
        return low @ w["attn_output_b.weight"].T

    def visible_rows(self, w, x, qr, ratio, layer, trace):
        """Return the indices of the compressed rows that each position reads."""
        if not ratio:
            return [np.zeros(0, int)] * len(x)
        counts = [(p + 1) // ratio for p in range(len(x))]
        if ratio != 4:
            return [np.arange(n) for n in counts]
        s = self.shape
        rows = self.compress(x, w, "indexer_compressor", 4, s.index_dim)
        rows = self.stored(self.index_row(rows))
        qi = (qr @ w["indexer.attn_q_b.weight"].T).reshape(len(x), s.n_index_heads, s.index_dim)
        qi = self.index_row(turn(qi, np.arange(len(x)), frequencies(4)))
        wi = x @ w["indexer.proj.weight"].T / np.sqrt(s.index_dim * s.n_index_heads)
        chosen = []
        for p, n in enumerate(counts):
            score = wi[p] @ np.maximum(0, qi[p] @ rows[:n].T)
            best = np.argsort(-score, kind="stable")[: s.top_k]  # lowest index first on ties
            chosen.append(np.sort(best))
        if trace is not None:
            trace.selected[layer], trace.indexed[layer] = chosen, rows
        return chosen

    def experts(self, w, x, tokens, layer, trace):
        s = self.shape
        z = x @ w["ffn_gate_inp.weight"].T
        p = np.sqrt(np.logaddexp(0, z))
        if "ffn_gate_tid2eid.weight" in w:
            chosen = w["ffn_gate_tid2eid.weight"][tokens].astype(int)
        else:
            chosen = np.argsort(-(p + w["exp_probs_b.bias"]), axis=1, kind="stable")[:, : s.n_used]
        weight = np.take_along_axis(p, chosen, 1)
        weight = s.expert_scale * weight / weight.sum(1, keepdims=True)
        y = self.swiglu(x, w["ffn_gate_shexp.weight"], w["ffn_up_shexp.weight"])
        y = y @ w["ffn_down_shexp.weight"].T
        for e in range(len(w["ffn_gate_exps.weight"])):
            t, k = np.nonzero(chosen == e)
            mid = self.swiglu(x[t], w["ffn_gate_exps.weight"][e], w["ffn_up_exps.weight"][e])
            y[t] += (weight[t, k, None] * mid) @ w["ffn_down_exps.weight"][e].T
        if trace is not None:
            trace.experts[layer] = chosen
        return y

    def swiglu(self, x, gate, up):
        g = np.minimum(x @ gate.T, self.shape.clamp)
        return g * sigmoid(g) * np.clip(x @ up.T, -self.shape.clamp, self.shape.clamp)

    def draft(self, streams, token, prefix="mtp.0."):
        """The multi-token-prediction block on one position at rotary position 0 -> logits [V]."""
        w, eps = self.w, self.shape.eps
        e = rms(w["token_embd.weight"][token], eps) * w[prefix + "enorm.weight"]
        g = rms(streams, eps) * w[prefix + "hnorm.weight"]  # [h, D]
        x = w[prefix + "e_proj.weight"] @ e + g @ w[prefix + "h_proj.weight"].T
        x = self.layer(len(self.shape.ratios), x[None], np.array([token]), None, prefix)
        return self.head(x, prefix + "hc_head", prefix + "norm.weight")[0]
