"""The whole program on a tiny DeepSeek V4: the answer is noise, the way that of the real model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"


@pytest.mark.slow
def test_it_answers_a_prompt_twice_alike(tmp_path: Path):
    """The second run opens the state of the system prompt that the first one saved."""
    command = [sys.executable, "-m", "ds4agent", "-m", str(MODEL), "-p", "hello", "-n", "6"]
    command += ["--seed", "1", "--device", "cpu", "--output-format", "json"]
    results = []
    for _ in range(2):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            timeout=300,
        )
        results.append(json.loads(done.stdout))
    first, second = results
    assert first["model"] == "DeepSeek V4 tiny test model"
    assert first["usage"]["generated_tokens"] == 6
    assert first["result"] == second["result"] != ""
    assert second["usage"]["prefilled_tokens"] < 100 < second["usage"]["reused_tokens"]
