"""Ask a model one question, in the same process: python examples/hello_engine.py MODEL.gguf"""

import sys
from pathlib import Path

from engine.chat.format import AssistantOpen, System, Text, User
from engine.engine import Engine
from engine.sampling_options import SamplingOptions


def main(model: Path, question: str = "What is a KV cache? Answer in one sentence.") -> None:
    engine = Engine.open(model, ctx=2048)
    session = engine.new_session()

    # A conversation is the tokens that the session has consumed. A chat format renders only the
    # new part of it; here that is everything up to the first token of the answer.
    prompt = [System("You are a helpful assistant."), User(question), AssistantOpen()]
    report = session.sync(engine.chat.render(prompt))
    print(f"[{engine.info.name} on {engine.info.device}, prefilled {report.prefilled} tokens]")

    parser = engine.chat.parser(tools=(), thinking=False)
    answer = session.generate(SamplingOptions(temperature=0.0), max_tokens=64)
    for token in answer:
        for event in parser.feed(token.data):
            if isinstance(event, Text):
                print(event.text, end="", flush=True)
    print(f"\n[{len(session.tokens)} tokens in the state, {answer.finish_reason}]")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
