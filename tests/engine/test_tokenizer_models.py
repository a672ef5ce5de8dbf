"""Token ids of real vocabularies, against ids recorded from llama.cpp and DeepSeek."""

import json
from pathlib import Path

import pytest

from engine.gguf_file import GgufFile
from engine.tokenizer import Tokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tokenizer"
QWEN_FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


def check(path: Path, recording: str) -> None:
    recorded = json.loads((FIXTURES / recording).read_text(encoding="utf-8"))
    assert path.name == recorded["model"]
    with GgufFile.open(path) as file:
        for pre, expected in recorded["ids"].items():
            file.metadata["tokenizer.ggml.pre"] = pre
            tokenizer = Tokenizer.from_gguf(file)
            for text, ids in zip(recorded["texts"], expected, strict=True):
                assert tokenizer.encode(text) == ids, (pre, text)
                assert tokenizer.render(ids).decode() == text


@pytest.mark.model
def test_smollm2_ids_equal_llama_cpp(smollm2_path: Path) -> None:
    check(smollm2_path, "smollm2.json")


@pytest.mark.slow
def test_qwen_ids_equal_llama_cpp(models_folder: Path) -> None:
    path = models_folder / QWEN_FILE
    if not path.exists():
        pytest.skip(f"needs the model {QWEN_FILE} in {models_folder}")
    check(path, "qwen2.5.json")


@pytest.mark.slow
def test_qwen_tool_tags_are_never_plain_text(models_folder: Path) -> None:
    path = models_folder / QWEN_FILE
    if not path.exists():
        pytest.skip(f"needs the model {QWEN_FILE} in {models_folder}")
    tokenizer = Tokenizer.from_gguf(GgufFile.open(path))
    assert tokenizer.control_id("<tool_call>") == 151657
    assert 151657 not in tokenizer.encode("<tool_call>")
    assert tokenizer.token_bytes(151657) == b"<tool_call>"


@pytest.mark.model
def test_smollm2_vocabulary_facts(smollm2_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf(GgufFile.open(smollm2_path))
    assert tokenizer.n_vocab == 49152
    assert tokenizer.control_id("<|im_start|>") == 1
    assert tokenizer.eos_ids == {0, 2}
    assert not tokenizer.add_bos
