"""ds4-bench model --synthetic --trace: launches and bytes of a token in full shapes."""

import importlib.util

import pytest

from ds4agent.bench import synthetic
from ds4agent.bench.cli import main
from ds4agent.bench.trace import trace_token

needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)
N_LAYERS = 43
TOKEN_BYTES = 9.56e9  # weights that a token of the published q2 recipe reads, each once


@needs_mlx
def test_a_token_of_flash_takes_few_launches_and_reads_weights_once():
    token = trace_token("v4-flash-q2", N_LAYERS, 4096, completes=False)
    launches, n_bytes = token.launches.total(), token.n_bytes.total()
    assert launches <= 600, token.launches
    assert TOKEN_BYTES <= n_bytes <= 1.1 * TOKEN_BYTES, token.n_bytes
    # Every layer has each of these once; a name that changed would make the counts above blind.
    for name in ("v4_attention", "v4_combine", "gate_up_iq2_xxs", "down_q2_k"):
        assert token.launches[name] == N_LAYERS
    assert token.launches["v4_top_k"] == 21  # of 4096 tokens' rows the best are chosen


@needs_mlx
def test_short_contexts_need_no_choice_of_rows():
    plain = trace_token("v4-flash-q2", 4, 1000, completes=False)
    completing = trace_token("v4-flash-q2", 4, 1000, completes=True)
    assert plain.launches["v4_top_k"] == plain.launches["v4_index_scores"] == 0
    # One layer of the four has rows of four tokens. The row that it leaves for the indexer is put
    # into its buffer too, but nothing of this token reads it.
    assert completing.launches - plain.launches == {"SliceUpdate": 1}


@needs_mlx
def test_the_command_tells_a_table(capsys):
    run = ["model", "--synthetic", "v4-flash-q2", "--trace", "--layers", "3", "--contexts", "64"]
    assert main(run) == 0
    out = capsys.readouterr().out
    assert "v4_attention" in out and "3 layers, context 64" in out


def test_a_model_file_can_not_be_traced(capsys):
    assert main(["model", "-m", "x.gguf", "--trace"]) == 1
    assert "--trace is for --synthetic models" in capsys.readouterr().err


# Where V4 Pro differs from Flash: DeepSeek's published config.json.
PRO = {
    "embedding_length": 7168,
    "attention.head_count": 128,
    "attention.q_lora_rank": 1536,
    "attention.output_group_count": 16,
    "attention.indexer.top_k": 1024,
    "expert_count": 384,
    "expert_feed_forward_length": 3072,
    "expert_weights_scale": 2.5,
}


@needs_mlx
def test_a_layer_of_pro_takes_the_same_launches_as_one_of_flash(monkeypatch):
    """Its output matrix, 16384 columns wide, too: no layer falls back to single operations."""
    flash = trace_token("v4-flash-q2", 4, 6000, completes=False)
    for key, value in PRO.items():
        monkeypatch.setitem(synthetic._FLASH, key, value)
    pro = trace_token("v4-flash-q2", 4, 6000, completes=False)
    assert pro.launches == flash.launches
    assert flash.launches["v4_top_k"] == 1
    assert pro.n_bytes.total() > 2 * flash.n_bytes.total()
