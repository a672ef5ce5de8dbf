"""The server with a real model, SmolLM2-135M: streams, schemas, seeds, a restart."""

import json
from pathlib import Path

import pytest

from tests.fakes.server_process import ServerProcess

openai = pytest.importorskip("openai", reason="needs the package openai")
pytestmark = [pytest.mark.slow, pytest.mark.model]

CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You answer briefly. " + "Known fact: water is wet. " * 110}


def start(folder: Path, model: Path) -> ServerProcess:
    return ServerProcess(folder, None, ("-m", str(model), "--ctx", "4096"))


def test_chat_stream_and_structured_output(tmp_path: Path, smollm2_path: Path) -> None:
    with start(tmp_path, smollm2_path) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
        asked = [{"role": "user", "content": "Name a colour."}]
        # The first of these reads the prompt in one go, the others compute its last token alone:
        # that may differ in the last bit, and with it a near tie.
        whole = [
            client.chat.completions.create(
                model="any", messages=asked, max_tokens=24, temperature=0
            )
            for _ in range(2)
        ][1]
        stream = client.chat.completions.create(
            model="any", messages=asked, max_tokens=24, temperature=0, stream=True
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        assert text == whole.choices[0].message.content and text.strip()
        seeded = [
            client.chat.completions.create(
                model="any", messages=asked, max_tokens=24, temperature=1.2, seed=7
            )
            for _ in range(2)
        ]
        first, second = (answer.choices[0].message.content for answer in seeded)
        assert first == second
        schema = {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green"]}, "n": {"type": "integer"}},
            "required": ["colour", "n"],
            "additionalProperties": False,
        }
        forced = client.chat.completions.create(
            model="any",
            messages=asked,
            max_tokens=60,
            response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
        )
        answer = json.loads(forced.choices[0].message.content)
        assert answer["colour"] in ("red", "green") and type(answer["n"]) is int


def test_a_restart_in_mid_conversation(tmp_path: Path, smollm2_path: Path) -> None:
    """The next turn loads the conversation from the disk; only the new part is read."""
    asked = {"temperature": 0, "max_tokens": 24}
    messages = [SYSTEM, {"role": "user", "content": "Is water wet?"}]
    following = {"role": "user", "content": "And ice?"}
    with start(tmp_path, smollm2_path) as server:
        first = server.post(CHAT, {"messages": messages, **asked})
        messages += [first["choices"][0]["message"], following]
        n_before = first["usage"]["total_tokens"]
        assert server.stop() == 0
    with start(tmp_path, smollm2_path) as server:
        restarted = server.post(CHAT, {"messages": messages, **asked})
    usage = restarted["usage"]
    read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert n_before > 600
    assert read <= usage["prompt_tokens"] - n_before + 2
    assert restarted["choices"][0]["message"]["content"].strip()
