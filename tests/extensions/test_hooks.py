"""Hooks around real calls, in the real sandbox."""

import threading

import pytest

from ds4agent.errors import ConfigError
from ds4agent.events import FilesRestored, Outcome, ToolFinished
from ds4agent.extensions.hooks import Hook, Hooks, When
from ds4agent.extensions.settings import read_hooks, read_servers
from ds4agent.permissions.rules import Rule
from ds4agent.requests import Mode, Undo
from tests.agent.conftest import call
from tools.base import Access


def _hook(when: When, calls: str, run: str) -> Hook:
    return Hook(when, Rule.parse(calls), run, 20.0)


def test_before_hook_forbids_a_call_and_the_model_reads_why(open_rig, workspace) -> None:
    hook = _hook(When.BEFORE, "write(*.lock)", 'echo "no $DS4_SUBJECT by $DS4_TOOL"; exit 1')
    rig = open_rig(
        [
            call("write", path="a.lock", content="x"),
            call("write", path="b.txt", content="x"),
            "Done.",
        ],
        mode=Mode.AUTO,
        hooks=(hook,),
    )
    rig.ready()
    assert rig.turn("write").outcome is Outcome.DONE
    first, second = rig.of(ToolFinished)
    assert not first.ok and "no a.lock by write" in first.text
    assert second.ok and (workspace / "b.txt").exists() and not (workspace / "a.lock").exists()


def test_after_hook_adds_what_it_prints_to_the_result(open_rig) -> None:
    hook = _hook(When.AFTER, "write", "wc -c < b.txt; printf '\\033[31mred'; exit 2")
    rig = open_rig([call("write", path="b.txt", content="12345"), "Done."], hooks=(hook,))
    rig.ready()
    rig.turn("write")
    text = rig.of(ToolFinished)[0].text
    assert "(failed)]\n5\nred" in text and "\x1b" not in text
    rig.wait_idle()
    assert "(failed)]\n5" in rig.said()


def test_arguments_come_as_json(open_rig, workspace) -> None:
    hook = _hook(When.BEFORE, "write", 'printf "%s" "$DS4_ARGUMENTS" > seen.json')
    rig = open_rig([call("write", path="b.txt", content="it's $HOME `x`"), "Ok."], hooks=(hook,))
    rig.ready()
    rig.turn("write")
    assert (workspace / "seen.json").read_text(encoding="utf-8") == (
        '{"path": "b.txt", "content": "it\'s $HOME `x`"}'
    )


def test_what_hooks_change_is_undone_with_the_turn(open_rig, workspace) -> None:
    hooks = (
        _hook(When.BEFORE, "write", "echo before >> log.txt"),
        _hook(When.AFTER, "write", "tr a-z A-Z < b.txt > tmp && cat tmp > b.txt && rm tmp"),
    )
    rig = open_rig([call("write", path="b.txt", content="small\n"), "Done."], hooks=hooks)
    rig.ready()
    rig.turn("write")
    rig.wait_idle()
    assert (workspace / "b.txt").read_text(encoding="utf-8") == "SMALL\n"
    assert (workspace / "log.txt").exists()
    rig.send(Undo())
    assert rig.wait(FilesRestored).paths == ("b.txt", "log.txt")
    assert sorted(path.name for path in workspace.iterdir()) == ["notes.txt"]


def test_hook_that_cannot_run_forbids_the_call() -> None:
    hooks = Hooks([_hook(When.BEFORE, "*", "true")], sandbox=None)
    told = hooks.before("write", Access.WRITE, "a", {}, threading.Event())
    assert "no sandbox" in told
    assert not Hooks([], None).before("write", Access.WRITE, "a", {}, threading.Event())


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("make", "expected a table"),
        ({"when": "during", "calls": "edit", "run": "x"}, "before or after"),
        ({"when": "after", "calls": "edit(", "run": "x"}, "no rule"),
        ({"when": "after", "calls": "edit"}, "no command"),
        ({"when": "after", "calls": "edit", "run": "x", "timeout_s": 0}, "timeout_s"),
        ({"when": "after", "calls": "edit", "run": "x", "timeout_s": float("nan")}, "timeout_s"),
        ({"when": "after", "calls": "edit", "run": "x", "colour": "red"}, "colour"),
    ],
)
def test_wrong_hook_is_told_with_its_place(entry, told) -> None:
    with pytest.raises(ConfigError) as caught:
        read_hooks([entry], "config.toml:3")
    assert told in f"{caught.value} {caught.value.hint}" and "config.toml:3" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("a b", {"command": ["x"]}),
        ("a", {}),
        ("a", {"command": ["x"], "url": "http://x"}),
        ("a", {"url": "file:///etc"}),
        ("a", {"command": ["x", 3]}),
        ("a", {"command": "x"}),
        ("a", {"command": ["x"], "env": {"A": 1}}),
        ("a", 7),
    ],
)
def test_wrong_server_is_told_with_its_place(name, table) -> None:
    with pytest.raises(ConfigError, match=r"config.toml:3"):
        read_servers({name: table}, "config.toml:3")


def test_server_reads_all_its_fields() -> None:
    (server,) = read_servers(
        {"gh": {"command": ["x"], "env": {"A": "b"}, "sandbox": False, "timeout_s": 5}}, "c"
    )
    assert server.command == ("x",) and server.env == {"A": "b"}
    assert not server.is_sandboxed and server.timeout_s == 5.0
