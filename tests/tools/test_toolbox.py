"""The outer edge: bad calls become one line, clear meanings are corrected and told."""

import errno
import json
from pathlib import Path

import pytest

from tools.base import Preview
from tools.errors import ToolError
from tools.sandbox.probe import SandboxReport
from tools.toolbox import Toolbox


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fly", {}, "there is no tool 'fly'. The tools are: read, more, write"),
        ("read", {}, "read needs the argument path. Give path: string"),
        ("read", {"path": None}, "needs the argument path"),
        ("read", {"path": {"a": 1}}, "path of read must be of type string"),
        ("read", {"path": "x", "start_line": "soon"}, "must be of type integer"),
        ("read", {"path": "x", "start_line": True}, "must be of type integer"),
        ("search", {"query": "x", "regex": "maybe"}, "must be of type boolean"),
        ("read", ["x"], "must be an object"),
        ("read", None, "must be an object"),
        ("bash", {"command": "ls"}, "no bash tool because the sandbox is off: none here"),
    ],
)
def test_bad_call_is_one_line(root: Path, name: str, arguments: object, said: str) -> None:
    box = Toolbox(root, None, SandboxReport("", "none here"))
    result = box.run(name, arguments)  # type: ignore[arg-type]
    assert not result.ok and said in result.text and "\n" not in result.text


def test_clear_meanings_are_corrected_and_told(toolbox: Toolbox, root: Path) -> None:
    (root / "a").write_text("x\ny\n", encoding="utf-8")
    arguments = {"path": "a", "start_line": "2", "max_lines": 999999, "mood": "good"}
    result = toolbox.run("read", arguments)
    assert result.ok and "2 y" in result.text
    assert "ignored unknown arguments: mood" in result.text
    assert "max_lines was changed from 999999 to 5000" in result.text


def test_list_of_lines_is_taken_as_text(toolbox: Toolbox, root: Path) -> None:
    assert toolbox.run("write", {"path": "a", "content": ["x", "y"]}).ok
    assert (root / "a").read_text(encoding="utf-8") == "x\ny"


def test_preview_raises_what_run_would_say(toolbox: Toolbox) -> None:
    for name, arguments in (("read", {}), ("edit", {"path": "no", "old": "a", "new": "b"})):
        with pytest.raises(ToolError) as caught:
            toolbox.preview(name, arguments)
        assert str(caught.value) in toolbox.run(name, arguments).text


def test_without_sandbox_there_is_no_shell(toolbox: Toolbox) -> None:
    assert "bash" not in toolbox.tools
    assert toolbox.sandbox_name.startswith("off: ")


def test_schemas_are_small_and_complete(root: Path, sandbox: None) -> None:
    box = Toolbox.from_folder(root)
    schemas = [[tool.name, tool.description, tool.parameters] for tool in box.tools.values()]
    assert list(box.tools) == [
        "read", "more", "write", "edit", "multi_edit", "list", "search",
        "bash", "bash_status", "bash_stop", "git", "git_commit", "todo",
    ]  # fmt: skip
    assert len(json.dumps(schemas)) < 3200  # about 800 tokens of any tokenizer
    for tool in box.tools.values():
        properties = set(tool.parameters["properties"])
        assert properties == set(tool.parameters["required"]) | set(tool.defaults)


def test_file_system_failure_is_told_not_raised(toolbox: Toolbox, root: Path) -> None:
    long_name = "x" * 300
    for name in ("read", "write"):
        result = toolbox.run(name, {"path": long_name, "content": "x"})
        assert not result.ok and "too long" in result.text


def test_file_system_failure_of_a_preview_is_a_tool_error(toolbox: Toolbox) -> None:
    class Failing:
        parameters: dict = {"type": "object", "properties": {}, "required": []}
        defaults: dict = {}
        bounds: dict = {}

        def preview(self, arguments: dict) -> Preview:
            raise OSError(errno.EIO, "Input/output error")

    toolbox.tools["failing"] = Failing()  # type: ignore[assignment]
    with pytest.raises(ToolError, match="failing failed: Input/output error"):
        toolbox.preview("failing", {})


def test_missing_workspace_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot open the workspace"):
        Toolbox(tmp_path / "none", None)
