"""A saved conversation goes on in another process with the tokens it would have had anyway."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.tiny_gguf import write_tiny_gguf

ROOT = Path(__file__).parent.parent.parent
N_GREEDY = 64

# Two programs, each run in a process of its own: one generates and saves on the way, the other
# opens what was saved. Both print the greedy tokens that follow.
SAVE = """
import json, sys
from pathlib import Path
from engine.chat.format import AssistantOpen, System, User
from engine.engine import Engine
from engine.sampling_options import SamplingOptions
from sessions.store import SessionMeta, SessionStore

model, folder, device = sys.argv[1:4]
greedy = SamplingOptions(temperature=0.0)
engine = Engine.open(Path(model), device=device, ctx=512)
session = engine.new_session()
session.sync(engine.chat.render([System("Be brief."), User("Tell a story."), AssistantOpen()]))
list(session.generate(greedy, max_tokens=10))
state = session.state()
text = engine.tokenizer.render(state.tokens)
SessionStore(Path(folder)).save(
    state, text, title="Tell a story.", created_at=7, meta=SessionMeta(cwd="", model="m")
)
print(json.dumps([token.id for token in session.generate(greedy, max_tokens=64)]))
"""
LOAD = """
import json, sys
from pathlib import Path
from engine.engine import Engine
from engine.sampling_options import SamplingOptions
from sessions.store import SessionStore

model, folder, device = sys.argv[1:4]
store = SessionStore(Path(folder))
state, _ = store.load(store.list()[0].id)
session = Engine.open(Path(model), device=device, ctx=512).restore(state)
tokens = session.generate(SamplingOptions(temperature=0.0), max_tokens=64)
print(json.dumps([token.id for token in tokens]))
"""


def run(program: str, *arguments: object) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("device", ["cpu", "mlx-cpu"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_tiny_model_continues_identically(tmp_path: Path, architecture: str, device: str) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", architecture=architecture)
    uninterrupted = run(SAVE, model, tmp_path / "kv", device)
    assert run(LOAD, model, tmp_path / "kv", device) == uninterrupted


@pytest.mark.model
def test_trained_model_continues_identically(tmp_path: Path, smollm2_path: Path) -> None:
    uninterrupted = run(SAVE, smollm2_path, tmp_path / "kv", "cpu")
    assert len(uninterrupted) == N_GREEDY
    assert run(LOAD, smollm2_path, tmp_path / "kv", "cpu") == uninterrupted
