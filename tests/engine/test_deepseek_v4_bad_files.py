"""Files and wishes that DeepSeek V4 refuses: one clear error each, before anything is loaded."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import EngineError, ModelFileError, NotEnoughMemory
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels.blocks import BLOCK

FILE = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"
TYPES = {block.name: type_id for type_id, block in BLOCK.items()}


@pytest.fixture
def gguf():
    """The sound file; tests change what was read of it."""
    with GgufFile.open(FILE) as gguf:
        yield gguf


def refusal(gguf) -> str:
    with pytest.raises(ModelFileError) as caught:
        plan_for(gguf)
    assert "\n" not in str(caught.value) and caught.value.hint.endswith(".")
    return str(caught.value)


def retype(gguf, name: str, type_name: str) -> None:
    gguf.tensors[name] = dataclasses.replace(gguf.tensors[name], type_id=TYPES[type_name])


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("block_count", 0, "block_count is 0, expected a positive integer"),
        ("block_count", None, "lacks the metadata deepseek4.block_count"),
        ("attention.compress_ratios", [0, 0, 4], "expected a list of at least 6 numbers"),
        ("attention.compress_ratios", [0, 0, 8, 128, 4, 128], "compresses by 8, expected 0, 4"),
        ("attention.compress_ratios", None, "lacks the metadata"),
        ("attention.head_count_kv", 2, "expected 1 (one row is key and value of all heads)"),
        ("attention.indexer.key_length", 64, "expected 128"),
        ("hyper_connection.count", 2, "expected 4 (four residual streams)"),
        ("expert_used_count", 9, "uses 9 of 8 experts"),
        ("expert_shared_count", 2, "expected 1 (one shared expert)"),
        ("rope.dimension_count", 63, "expected an even number"),
        ("attention.output_group_count", 3, "4 heads in 3 output groups"),
        ("swiglu_clamp_exp", [10.0, -1.0, 10.0, 10.0, 10.0, 10.0], "limits SwiGLU to -1.0"),
        ("attention.layer_norm_rms_epsilon", "tiny", "is 'tiny', expected a positive number"),
        ("hash_layer_count", 7, "chooses experts by token in 7 of 6 layers"),
        ("embedding_length", 512, "has shape [512, 256], expected [512, 512]"),
    ],
)
def test_wrong_metadata_is_named(key, value, told, gguf):
    if value is None:
        del gguf.metadata[f"deepseek4.{key}"]
    else:
        gguf.metadata[f"deepseek4.{key}"] = value
    assert told in refusal(gguf)


def test_a_part_of_the_layers_says_which_are_missing(gguf):
    for name in [n for n in gguf.tensors if n.startswith(("blk.2.", "blk.3.", "blk.5."))]:
        del gguf.tensors[name]
    assert "holds layers 0-1, 4, but 2-3, 5 of 0-5 are missing" in refusal(gguf)


def test_one_missing_tensor_is_named(gguf):
    del gguf.tensors["blk.4.indexer.proj.weight"]
    assert "blk.4.indexer.proj.weight" in refusal(gguf)


def test_gate_and_up_of_two_recipes_are_refused(gguf):
    retype(gguf, "blk.3.ffn_up_exps.weight", "Q4_K")
    assert "layer 3" in (told := refusal(gguf)) and "IQ2_XXS" in told and "Q4_K" in told


def test_layers_of_two_recipes_are_one_model(gguf):
    for part in ("gate", "up", "down"):
        retype(gguf, f"blk.5.ffn_{part}_exps.weight", "Q4_K")
    assert plan_for(gguf).n_layers == 6


@pytest.mark.parametrize("type_name", ["I32"])
def test_a_type_that_is_not_computed_with_is_named(type_name, gguf):
    retype(gguf, "blk.1.attn_kv.weight", type_name)
    assert "blk.1.attn_kv.weight" in (told := refusal(gguf)) and type_name in told


def test_a_table_of_another_type_is_named(gguf):
    retype(gguf, "blk.0.ffn_gate_tid2eid.weight", "F32")
    assert "has type F32, expected I32" in refusal(gguf)


def test_names_of_another_producer_are_refused(gguf):
    info = gguf.tensors.pop("blk.0.attn_kv.weight")
    gguf.tensors["blk.0.attn_kv_a_mqa.weight"] = info
    assert "blk.0.attn_kv.weight" in refusal(gguf)


def test_one_tensor_too_many_is_refused_but_not_a_draft_block(gguf):
    info = gguf.tensors["blk.0.attn_norm.weight"]
    gguf.tensors["mtp.0.enorm.weight"] = info
    plan_for(gguf)
    gguf.tensors["blk.0.attn_extra.weight"] = info
    assert "1 tensors that DeepSeek V4 does not have, such as blk.0.attn_extra" in refusal(gguf)


def test_a_table_that_names_no_expert_is_refused(gguf, monkeypatch):
    data = gguf.data
    table = np.full(512 * 3, 8, np.int32)
    monkeypatch.setattr(gguf, "data", lambda n: table.view(np.uint8) if "tid2eid" in n else data(n))
    assert "names experts 8 to 8, expected 0 to 7" in refusal(gguf)


def test_a_context_over_the_limit_and_too_little_memory_are_told_before_loading():
    seen: list[int] = []

    def opened(**options) -> EngineError:
        with pytest.raises(EngineError) as caught:
            Engine.open(FILE, "cpu", progress=lambda done, total: seen.append(done), **options)
        assert "\n" not in str(caught.value)
        return caught.value

    assert "a context of 99999999 tokens was asked for" in str(opened(ctx=99_999_999))
    assert isinstance(opened(ctx=4096, free_memory=lambda: 1 << 20), NotEnoughMemory)
    assert seen == []
