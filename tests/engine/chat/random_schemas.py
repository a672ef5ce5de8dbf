"""Random tools, and a model whose logits are random: what a grammar alone makes of a reply."""

import random
from typing import Any

import numpy as np

from engine.chat.format import ParserEvent, StreamParser, ToolSpec
from engine.grammar import GrammarState
from engine.sampler import Sampler
from engine.sampling_options import SamplingOptions
from engine.tokenizer import Tokenizer

_WORDS = ("path", "line", "mode", "größe", "all files", "x-y", "id")
_CLOSING = b'"]}</>\n,'  # a reply of random tokens must end some time


def random_tool(chooser: random.Random, name: str) -> ToolSpec:
    keys = chooser.sample(_WORDS, chooser.randrange(5))
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {key: random_schema(chooser, 2) for key in keys},
        "required": chooser.sample(keys, chooser.randrange(len(keys) + 1)),
    }
    if chooser.random() < 0.5:
        parameters["additionalProperties"] = False
    return ToolSpec(name, "", parameters)


def random_schema(chooser: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["text", "choice", "length", "pattern", "integer", "number", "boolean", "null", "mixed"]
    if depth:
        kinds += ["array", "object", "either"] * 2
    match chooser.choice(kinds):
        case "text":
            return {"type": "string", "description": "A «text»."}
        case "choice":
            return {"enum": chooser.sample(["a", "b c", 'say "ja"', "<x>", "für"], 3)}
        case "length":
            least = chooser.randrange(4)
            return {"type": "string", "minLength": least, "maxLength": least + 5}
        case "pattern":
            return {"type": "string", "pattern": chooser.choice(["^[a-z]{1,4}$", "^v[0-9]+$"])}
        case "integer":
            least = chooser.randrange(-5, 5)
            return {"type": "integer", "minimum": least, "maximum": least + 20}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": 10}
        case "mixed":
            return {"type": chooser.choice([["string", "null"], ["integer", "boolean"]])}
        case "array":
            items = random_schema(chooser, depth - 1)
            return {"type": "array", "items": items, "minItems": 1, "maxItems": 3}
        case "object":
            return {
                "type": "object",
                "properties": {
                    "a": random_schema(chooser, depth - 1),
                    "b": random_schema(chooser, depth - 1),
                },
                "required": ["a"],
                "additionalProperties": False,
            }
        case "either":
            return {"anyOf": [random_schema(chooser, depth - 1) for _ in range(2)]}
        case kind:
            return {"type": kind}


def speak(
    parser: StreamParser, state: GrammarState, tokenizer: Tokenizer, stop_id: int, seed: int
) -> tuple[bytes, list[ParserEvent], bool]:
    """Sample from random logits under a grammar until the reply ends, at most 4000 tokens.

    Returns:
        The bytes, the events, and whether it ended by itself.
    """
    random_logits = np.random.default_rng(seed)
    lean = np.zeros(tokenizer.n_vocab, np.float32)
    for token_id in range(tokenizer.n_vocab):
        data = tokenizer.token_bytes(token_id)
        lean[token_id] = 4.0 if data in tokenizer_closers or len(data) > 1 else 0.0
    lean[stop_id] = 4.0
    sampler = Sampler(SamplingOptions(temperature=1.0, min_p=0.0, seed=seed))
    said, events = b"", []
    for position in range(4000):
        logits = lean + random_logits.standard_normal(lean.size).astype(np.float32)
        token_id, _ = sampler.sample(
            logits, position, greedy=parser.syntax.is_greedy, allowed=state.allowed()
        )
        if token_id == stop_id:
            return said, [*events, *parser.finish(stopped=True)], True
        state.accept(token_id)
        said += tokenizer.token_bytes(token_id)
        events += parser.feed(tokenizer.token_bytes(token_id))
        if parser.finished:
            return said, [*events, *parser.finish()], True
    return said, [*events, *parser.finish()], False


tokenizer_closers = {bytes([byte]) for byte in _CLOSING}
