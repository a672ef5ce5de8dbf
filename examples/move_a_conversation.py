"""Save a live conversation and go on from the file: python examples/move_a_conversation.py MODEL"""

import sys
import tempfile
from itertools import islice
from pathlib import Path

from engine.chat.format import AssistantOpen, System, User
from engine.engine import Engine
from engine.sampling_options import SamplingOptions
from sessions.store import SessionMeta, SessionStore


def main(model: Path) -> None:
    greedy = SamplingOptions(temperature=0.0)
    engine = Engine.open(model, ctx=2048)
    session = engine.new_session()
    items = [System("You are a helpful assistant."), User("Count to ten."), AssistantOpen()]
    session.sync(engine.chat.render(items))
    for _ in islice(session.generate(greedy, max_tokens=8), 8):
        pass

    with tempfile.TemporaryDirectory() as folder:
        store = SessionStore(Path(folder))
        state = session.state()
        meta = SessionMeta(cwd="", model=engine.info.name)
        text = engine.tokenizer.render(state.tokens)
        saved = store.save(state, text, title="Count to ten.", created_at=1, meta=meta)
        print(f"saved {saved.n_bytes:,} bytes for {len(state.tokens)} tokens")

        # Another process, machine or device would do just this: no prefill, the same tokens.
        restored, _ = store.load(saved.id)
        again = engine.restore(restored)

    here = [token.id for token in session.generate(greedy, max_tokens=16)]
    there = [token.id for token in again.generate(greedy, max_tokens=16)]
    print("the restored session continues identically:", here == there)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
