"""Grammars under a real session: forced answers, errors in one line, resumed generations."""

import json
import re
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.errors import EngineError
from engine.grammar import Grammar, GrammarCompiler, GrammarError
from engine.sampling_options import SamplingOptions
from engine.session import Session
from tests.fakes.tiny_gguf import write_tiny_gguf

HOT = SamplingOptions(temperature=1.0, min_p=0.0, seed=3)
PROMPT = list(b"Say something: ")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return Engine.open(write_tiny_gguf(path, "qwen2", ctx_train=512), "cpu")


@pytest.fixture(scope="module")
def compiler(engine: Engine) -> GrammarCompiler:
    return GrammarCompiler(engine.tokenizer, {258})


def said(session: Session, state, max_tokens: int = 400) -> tuple[bytes, str]:
    generation = session.generate(HOT, max_tokens, grammar=state)
    return b"".join(token.data for token in generation), generation.finish_reason


def test_a_regex_forces_the_answer_and_its_end(engine: Engine, compiler: GrammarCompiler) -> None:
    session = engine.new_session()
    session.sync(PROMPT)
    text, reason = said(session, compiler.start(Grammar.regex(r"[0-9]{3}-[a-f]{2}")))
    assert re.fullmatch(rb"[0-9]{3}-[a-f]{2}", text)
    assert reason == "stop"


def test_a_schema_forces_json(engine: Engine, compiler: GrammarCompiler) -> None:
    session = engine.new_session()
    session.sync(PROMPT)
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    text, reason = said(session, compiler.start(Grammar.json_schema(schema)))
    assert 0 <= json.loads(text)["n"] <= 99 and reason == "stop"


def test_a_second_generation_goes_on_in_the_grammar(
    engine: Engine, compiler: GrammarCompiler
) -> None:
    grammar = Grammar.lark("start: /[a-z]{8}/ /[0-9]{8}/")
    whole, parted = engine.new_session(), engine.new_session()
    whole.sync(PROMPT)
    parted.sync(PROMPT)
    expected, _ = said(whole, compiler.start(grammar))
    state = compiler.start(grammar)
    pieces = [said(parted, state, n)[0] for n in (5, 5, 100)]
    assert b"".join(pieces) == expected and re.fullmatch(rb"[a-z]{8}[0-9]{8}", expected)


@pytest.mark.parametrize("text", ["start: nowhere", "start: /[/", "x: y", ""])
def test_a_wrong_grammar_is_one_line(compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(GrammarError, match="can't be used") as caught:
        compiler.start(Grammar.lark(text))
    assert "\n" not in str(caught.value)


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(GrammarError, match="list, expected an object"):
        Grammar.json_schema([])


def test_a_token_that_is_not_allowed_is_an_error(compiler: GrammarCompiler) -> None:
    state = compiler.start(Grammar.regex("a"))
    state.accept(ord("b"))
    with pytest.raises(EngineError, match="can't be followed"):
        state.allowed()


def test_complete_where_the_turn_may_end(compiler: GrammarCompiler) -> None:
    state = compiler.start(Grammar.regex("ab?"))
    found = []
    for token_id in b"ab":
        found.append(state.is_complete)
        state.accept(token_id)
    assert [*found, state.is_complete] == [False, True, True]
    assert set(state.allowed().nonzero()[0]) <= {258}


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64])
def test_same_tokens_options_and_seed_give_the_same_output(
    engine: Engine, tmp_path: Path, chunk_tokens: int
) -> None:
    def start(chunk: int) -> Session:
        session = Session(engine._model, engine.tokenizer, {258}, 512, "f", chunk)
        session.sync(PROMPT * 4)
        return session

    def ids(session: Session, n: int) -> list[int]:
        return [token.id for token in session.generate(HOT, n)]

    expected = ids(start(256), 40)
    assert ids(start(chunk_tokens), 40) == expected
    # Broken off, saved, and gone on with in a session of its own, as after a restart.
    first = start(chunk_tokens)
    head = ids(first, 13)
    again = Session(engine._model, engine.tokenizer, {258}, 512, "f", chunk_tokens)
    again.load(first.state())
    assert head + ids(again, 27) == expected
