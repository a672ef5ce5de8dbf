"""The head of a conversation: small, stable, with the project's own words."""

from pathlib import Path

import pytest

from ds4agent.agent.profiles.full import FULL
from ds4agent.agent.profiles.small import SMALL
from ds4agent.agent.prompt import project_instructions, reminder, system_text, tool_specs
from engine.chat.format import System
from engine.chat.registry import chat_format_for
from engine.gguf_file import GgufFile
from engine.tokenizer import Tokenizer
from tools.toolbox import Toolbox


def test_tools_for_a_small_model_are_few_and_for_others_all(tmp_path: Path) -> None:
    tools = Toolbox(tmp_path, sandbox=None).tools.values()
    assert [spec.name for spec in tool_specs(tools, FULL.tools)] == [tool.name for tool in tools]
    assert [spec.name for spec in tool_specs(tools, SMALL.tools)] == ["read", "edit", "list"]
    assert len(SMALL.tools) == 4


def test_small_model_is_not_offered_limits_to_fill_in(tmp_path: Path) -> None:
    tools = Toolbox(tmp_path, sandbox=None).tools.values()
    small = {spec.name: spec.parameters for spec in tool_specs(tools, offers_limits=False)}
    whole = {spec.name: spec.parameters for spec in tool_specs(tools)}
    assert set(small["read"]["properties"]) == {"path"}
    assert {"path", "start_line", "max_lines"} <= set(whole["read"]["properties"])
    assert small["edit"] == whole["edit"]


def test_reminder_is_one_short_line_however_long_the_task() -> None:
    assert '"count the lines"' in reminder("count\n  the lines")
    assert reminder("word " * 1000).count("\n") == 2 and len(reminder("word " * 1000)) < 400


@pytest.mark.model
def test_head_for_a_small_model_with_all_its_tools_is_below_600_tokens(
    tmp_path: Path, smollm2_path: Path, sandbox: None
) -> None:
    gguf = GgufFile.open(smollm2_path)
    tokenizer = Tokenizer.from_gguf(gguf)
    chat = chat_format_for(gguf.metadata["general.architecture"], tokenizer, gguf.metadata)
    tools = Toolbox.from_folder(tmp_path).tools.values()
    specs = tool_specs(tools, SMALL.tools, offers_limits=SMALL.offers_limits)
    assert "bash" in [spec.name for spec in specs]
    head = chat.render([System(system_text(tmp_path, prompt=SMALL.prompt), specs)])
    assert len(head) < 600


def test_instructions_come_from_the_nearest_file_within_the_repository(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("outside", encoding="utf-8")
    repository = tmp_path / "repo"
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    (repository / ".git").mkdir()
    assert project_instructions(inner) is None
    (repository / "AGENTS.md").write_text("top", encoding="utf-8")
    assert project_instructions(inner)[1].endswith("top")
    (inner / "AGENTS.md").write_text("near " * 2000, encoding="utf-8")
    paths, text = project_instructions(inner)
    assert paths == [inner / "AGENTS.md", repository / "AGENTS.md"]
    assert len(text) < 4400 and "cut here" in text


def test_instructions_of_parents_come_first_and_the_nearest_last(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "a"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("not of this project", encoding="utf-8")
    (inner / "AGENT.md").write_text("near", encoding="utf-8")
    assert project_instructions(inner)[1].endswith("near")
    (inner.parent / ".git").mkdir()
    (inner.parent / "AGENTS.md").write_text("top", encoding="utf-8")
    (inner.parent / "AGENT.md").write_text("second name", encoding="utf-8")
    text = project_instructions(inner)[1]
    assert text.index("top") < text.index("near")
    assert "not of this" not in text and "second name" not in text


def test_system_text_names_the_folder_and_ends_with_the_extra(tmp_path: Path) -> None:
    text = system_text(tmp_path, "Use tabs.\n")
    assert str(tmp_path) in text and text.endswith("\n\nUse tabs.")
    assert text == system_text(tmp_path, "Use tabs.\n")
