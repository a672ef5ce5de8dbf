"""The float64 oracle against published vectors: what everything else of DeepSeek V4 rests on."""

import numpy as np
import pytest

from tests.oracles import cache_rounding, deepseek_v4
from tests.oracles.deepseek_v4 import Oracle, Shape

TOKENS = [(7 * i * i + 3 * i + 1) % 32 for i in range(140)]
SHAPE = Shape(
    ratios=[0, 4, 128, 4],
    n_heads=4,
    head_dim=128,
    n_groups=2,
    n_used=3,
    n_index_heads=4,
    index_dim=128,
    top_k=5,
    window=16,
    expert_scale=1.5,
    clamp=0.6,
    n_hash_layers=2,
)
# position -> first four logits, argmax, sum of all
EXPECTED = {
    0: ((-0.081582542, -0.408630239, -0.345143896, 1.291240499), 26, 4.045733305),
    3: ((-0.186340377, 0.556989032, 0.301066224, 1.304755196), 28, 7.152501617),
    4: ((-0.560832769, 0.423729701, -0.787810581, 2.289396775), 3, -7.060967446),
    20: ((-0.310698752, -1.439036475, -0.372542294, -0.555797939), 10, -1.969285781),
    63: ((-1.612303336, 0.153333852, -1.212335336, 0.617587403), 29, -6.053516869),
    127: ((-1.526724309, 0.350897863, -1.098133646, 0.692881741), 29, -4.926403066),
    128: ((-0.496209575, -0.371200259, -0.191327098, 1.014959122), 29, 4.505219823),
    139: ((0.332032606, 0.07623597, -0.479421931, 0.45228762), 29, 8.865865559),
}
EXACT = 2e-9  # the vectors have nine digits after the point


def uniform(number: int, n: int) -> np.ndarray:
    """The vectors' pseudo-random numbers in [0, 1) of one tensor."""
    z = np.arange(n, dtype=np.uint32) * np.uint32(2654435761)
    z += np.uint32((number * 40503 + 1) & 0xFFFFFFFF)
    z ^= z >> np.uint32(16)
    z *= np.uint32(2246822519)
    z ^= z >> np.uint32(13)
    z *= np.uint32(3266489917)
    z ^= z >> np.uint32(16)
    return z / 2.0**32


class Maker:
    """Tensors by number, as the vectors define them."""

    def __init__(self) -> None:
        self.weights: dict[str, np.ndarray] = {}

    def spread(self, name, number, shape, a):
        values = (2 * uniform(number, int(np.prod(shape))) - 1) * a
        self.weights[name] = values.reshape(shape)

    def mat(self, name, number, *shape):
        self.spread(name, number, shape, 1.5 / np.sqrt(shape[-1]))

    def norm(self, name, number, n):
        self.weights[name] = 1 + 0.1 * (2 * uniform(number, n) - 1)

    def pos(self, name, number, n):
        self.weights[name] = 0.5 + uniform(number, n)

    def layer(self, p, b, ratio, hash_layer=None):
        for i, sub in ((1, "attn"), (4, "ffn")):
            self.mat(f"{p}hc_{sub}_fn.weight", b + i, 24, 256)
            self.spread(f"{p}hc_{sub}_base.weight", b + i + 1, 24, 0.3)
            self.pos(f"{p}hc_{sub}_scale.weight", b + i + 2, 3)
        self.norm(f"{p}attn_norm.weight", b + 7, 64)
        self.norm(f"{p}ffn_norm.weight", b + 8, 64)
        self.mat(f"{p}attn_q_a.weight", b + 9, 32, 64)
        self.norm(f"{p}attn_q_a_norm.weight", b + 10, 32)
        self.mat(f"{p}attn_q_b.weight", b + 11, 512, 32)
        self.mat(f"{p}attn_kv.weight", b + 12, 128, 64)
        self.norm(f"{p}attn_kv_a_norm.weight", b + 13, 128)
        self.spread(f"{p}attn_sinks.weight", b + 14, 4, 0.5)
        self.mat(f"{p}attn_output_a.weight", b + 15, 32, 256)
        self.mat(f"{p}attn_output_b.weight", b + 16, 64, 32)
        if ratio:
            width = 256 if ratio == 4 else 128
            self.mat(f"{p}attn_compressor_kv.weight", b + 17, width, 64)
            self.mat(f"{p}attn_compressor_gate.weight", b + 18, width, 64)
            self.spread(f"{p}attn_compressor_ape.weight", b + 19, (ratio, width), 0.5)
            self.norm(f"{p}attn_compressor_norm.weight", b + 20, 128)
        if ratio == 4:
            self.mat(f"{p}indexer.attn_q_b.weight", b + 21, 512, 32)
            self.mat(f"{p}indexer.proj.weight", b + 22, 4, 64)
            self.mat(f"{p}indexer_compressor_kv.weight", b + 23, 256, 64)
            self.mat(f"{p}indexer_compressor_gate.weight", b + 24, 256, 64)
            self.spread(f"{p}indexer_compressor_ape.weight", b + 25, (4, 256), 0.5)
            self.norm(f"{p}indexer_compressor_norm.weight", b + 26, 128)
        self.mat(f"{p}ffn_gate_inp.weight", b + 27, 8, 64)
        if hash_layer is None:
            self.spread(f"{p}exp_probs_b.bias", b + 28, 8, 0.3)
        else:
            v, j = np.arange(32)[:, None], np.arange(3)
            self.weights[f"{p}ffn_gate_tid2eid.weight"] = (5 * v + 3 * j + hash_layer) % 8
        for i, part in ((29, "gate"), (30, "up"), (31, "down")):
            self.mat(f"{p}ffn_{part}_exps.weight", b + i, 8, 64, 64)
            self.mat(f"{p}ffn_{part}_shexp.weight", b + i + 3, 64, 64)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    maker = Maker()
    maker.spread("token_embd.weight", 0, (32, 64), 1.0)
    maker.mat("output.weight", 1, 32, 64)
    maker.norm("output_norm.weight", 2, 64)
    maker.mat("output_hc_fn.weight", 3, 4, 256)
    maker.spread("output_hc_base.weight", 4, 4, 0.3)
    maker.pos("output_hc_scale.weight", 5, 1)
    for layer, ratio in enumerate(SHAPE.ratios):
        maker.layer(f"blk.{layer}.", 100 * (layer + 1), ratio, layer if layer < 2 else None)
    maker.layer("mtp.0.", 500, 0)
    maker.mat("mtp.0.e_proj.weight", 540, 64, 64)
    maker.mat("mtp.0.h_proj.weight", 541, 64, 64)
    for number, name in ((542, "enorm"), (543, "hnorm"), (544, "norm")):
        maker.norm(f"mtp.0.{name}.weight", number, 64)
    maker.mat("mtp.0.hc_head_fn.weight", 545, 4, 256)
    maker.spread("mtp.0.hc_head_base.weight", 546, 4, 0.3)
    maker.pos("mtp.0.hc_head_scale.weight", 547, 1)
    return Oracle(maker.weights, SHAPE)


def test_random_source_gives_the_check_values():
    assert np.allclose(uniform(0, 4), [0.37666468, 0.54804821, 0.80790734, 0.64277801], atol=1e-8)
    assert np.allclose(uniform(101, 2), [0.02995121, 0.93879747], atol=1e-8)


def test_logits_are_those_of_the_vectors(oracle):
    logits = oracle.run(TOKENS)
    for position, (first, best, total) in EXPECTED.items():
        row = logits[position]
        assert np.abs(row[:4] - first).max() < EXACT, position
        assert row.argmax() == best
        assert abs(row.sum() - total) < 32 * EXACT


def test_every_prefix_gives_the_same_last_logits(oracle):
    whole = oracle.run(TOKENS)
    for n in (1, 3, 4, 5, 16, 17, 64, 127, 128, 129):
        assert np.abs(oracle.run(TOKENS[:n])[-1] - whole[n - 1]).max() < 1e-9


def test_draft_block_gives_the_logits_of_the_vectors(oracle):
    row = oracle.draft(oracle.streams(TOKENS[:1])[0], TOKENS[1])
    first = [1.417171456, 0.193013258, 0.807479639, -0.870821663]
    assert np.abs(row[:4] - first).max() < EXACT
    assert row.argmax() == 0
    assert abs(row.sum() - -1.496075409) < 32 * EXACT


def test_hyper_connection_gives_the_check_values():
    m = np.sin(np.arange(24) + 1)
    pre, post, comb = deepseek_v4.mixes(m, [0.5, 0.8, 1.2], 0.01 * np.arange(24), SHAPE)
    assert np.allclose(pre, [0.6036602, 0.6141174, 0.5226255, 0.4137712], atol=1e-7)
    assert np.allclose(post, [0.6516456, 0.9134509, 1.284705, 1.4059423], atol=1e-7)
    expected = [
        [0.3881291, 0.2165505, 0.1707127, 0.2246068],
        [0.1188621, 0.414196, 0.3751305, 0.0918103],
        [0.0339277, 0.0767513, 0.3082516, 0.5810684],
        [0.4590801, 0.2925012, 0.1459042, 0.1025135],
    ]
    assert np.allclose(comb, expected, atol=1e-7)


def test_frequencies_give_the_check_values():
    yarn, plain = deepseek_v4.frequencies(4), deepseek_v4.frequencies(0)
    expected = {
        0: 1,
        1: 0.687656022,
        8: 0.05,
        15: 0.00363553858,
        16: 0.002265625,
        20: 0.000296977778,
        25: 5.37231267e-6,
        31: 5.68052904e-7,
    }
    for pair, omega in expected.items():
        assert yarn[pair] == pytest.approx(omega, rel=1e-8)
    for pair, omega in {1: 0.749894209, 16: 0.01, 31: 1.33352143e-4}.items():
        assert plain[pair] == pytest.approx(omega, rel=1e-8)


def test_rounding_gives_the_check_values():
    row = np.zeros(64)
    row[:8] = [0.1, -1.7, 3.3, 0.0123, -0.5, 2.02, -3.14159, 0.7]
    fp8 = cache_rounding.fp8_blocks_of_64(row)
    assert np.allclose(
        fp8[:8], [0.1015625, -1.75, 3.25, 0.01269531, -0.5, 2.0, -3.25, 0.6875], atol=1e-8
    )
    fp4 = cache_rounding.fp4_blocks_of_32(row)
    assert fp4[:8].tolist() == [0, -1.5, 3, 0, -0.5, 2, -3, 0.5]
    ties = cache_rounding.nearest(
        np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]), cache_rounding.E2M1
    )
    assert ties.tolist() == [0, 1, 1, 2, 2, 4, 4]
    router = np.sqrt(np.logaddexp(0, np.array([-2, 0, 1, 25])))
    assert np.allclose(router, [0.3562696, 0.8325546, 1.1459763, 5.0], atol=1e-7)
