"""MCP servers, real ones: in the sandbox or by HTTP, called, interrupted, missing."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ds4agent.events import ApprovalNeeded, Notice, Outcome, TurnEnded
from ds4agent.extensions.mcp_client import McpServers
from ds4agent.extensions.mcp_tool import McpTool
from ds4agent.extensions.settings import ServerSettings
from ds4agent.requests import Answer, Mode, Submit
from tests.agent.conftest import call
from tools.base import Access
from tools.errors import ToolError
from tools.toolbox import Toolbox

SERVER = Path(__file__).with_name("mcp_server.py")
PROGRAM = (sys.executable, str(SERVER))


@pytest.fixture
def open_servers(workspace):
    opened: list[McpServers] = []

    def start(*settings: ServerSettings, max_bytes: int = 4096):
        servers = McpServers(settings, workspace, max_bytes)
        opened.append(servers)
        tools, problems = servers.start(threading.Event())
        return {tool.name: tool for tool in tools}, problems

    yield start
    for servers in opened:
        servers.close()


def _run(tool: McpTool, cancel: threading.Event | None = None, **arguments):
    return tool.run(arguments, cancel or threading.Event(), lambda text: None)


def _local(name: str = "test", **values) -> ServerSettings:
    return ServerSettings(name, PROGRAM, is_sandboxed=False, **values)


def test_tools_of_a_program_are_offered_under_its_name_and_answer(open_servers) -> None:
    tools, problems = open_servers(_local())
    assert not problems
    assert {"test.add", "test.shout", "test.fail"} <= set(tools)
    assert tools["test.add"].access is Access.REMOTE
    assert _run(tools["test.add"], a=2, b=3).text == "5"
    loud = _run(tools["test.shout"], text="hi")
    assert loud.ok and loud.text == "HI"
    failed = _run(tools["test.fail"])
    assert not failed.ok and "fail" in failed.text


def test_arguments_are_checked_by_the_schema_of_the_server(open_servers, workspace) -> None:
    tools, _ = open_servers(_local())
    toolbox = Toolbox(workspace, sandbox=None)
    toolbox.tools.update(tools)
    wrong = toolbox.run("test.add", {"a": "two", "b": 3})
    assert not wrong.ok and "do not fit at a" in wrong.text
    assert toolbox.run("test.add", {"a": 1, "b": 3}).text == "4"
    toolbox.close()


def test_interrupt_ends_the_waiting_at_once(open_servers) -> None:
    tools, _ = open_servers(_local())
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    started = time.monotonic()
    result = _run(tools["test.sleep"], cancel, seconds=20.0)
    assert not result.ok and "interrupted" in result.text
    assert time.monotonic() - started < 5.0


def test_call_that_takes_too_long_is_an_error(open_servers) -> None:
    tools, _ = open_servers(_local(timeout_s=0.5))
    result = _run(tools["test.sleep"], seconds=20.0)
    assert not result.ok and "test failed" in result.text


def test_long_result_is_cut(open_servers) -> None:
    tools, _ = open_servers(_local(), max_bytes=2000)
    result = _run(tools["test.shout"], text="x" * 5000)
    assert len(result.text) < 2200 and "cut" in result.text


def test_server_that_does_not_start_costs_a_line(open_servers) -> None:
    tools, problems = open_servers(
        _local("good"),
        ServerSettings("gone", ("/no/such/program",), is_sandboxed=False),
        ServerSettings("dies", (sys.executable, "-c", "raise SystemExit(3)"), is_sandboxed=False),
        ServerSettings("closed", url="http://127.0.0.1:9/mcp"),
    )
    assert "good.add" in tools
    assert sorted(problem.split()[2] for problem in problems) == ["closed", "dies", "gone"]
    assert all("\n" not in problem for problem in problems)


def test_server_over_http(open_servers) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*PROGRAM, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        tools, problems = open_servers(ServerSettings("web", url=f"http://127.0.0.1:{port}/mcp"))
        assert not problems
        assert _run(tools["web.add"], a=20, b=3).text == "23"
    finally:
        process.kill()
        process.wait()


def test_program_runs_in_the_sandbox_with_the_variables_handed_over(
    open_servers, workspace, tmp_path, monkeypatch
) -> None:
    from tools.sandbox.probe import open_sandbox

    if open_sandbox(workspace)[0] is None:
        pytest.skip("needs a sandbox mechanism (bubblewrap or Landlock)")
    secret = tmp_path / "secret.txt"
    secret.write_text("s", encoding="utf-8")
    inside = workspace / "server.py"
    inside.write_text(SERVER.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("TOKEN", "not this one")
    settings = ServerSettings(
        "box", (sys.executable, str(inside)), env={"TOKEN": "t0ken", "OUTSIDE": str(secret)}
    )
    tools, problems = open_servers(settings)
    assert not problems
    text = _run(tools["box.place"]).text
    assert "token=t0ken" in text and "outside=False" in text
    # What the person's variables are never stands in a list of processes.
    lines = [
        Path(f"/proc/{pid}/cmdline").read_bytes()
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if Path(f"/proc/{pid}/cmdline").exists()
    ]
    assert not any(b"t0ken" in line for line in lines if b"pytest" not in line)


def test_servers_are_gone_with_the_agent(open_rig) -> None:
    marker = f"mcp_server.py\0--{os.getpid()}"
    settings = ServerSettings("test", (*PROGRAM[:1], "-u", PROGRAM[1]), is_sandboxed=False)
    rig = open_rig(["Hi."], servers=(settings,))
    rig.ready()
    assert "test.add" in rig.worker._equipment.toolbox.tools
    rig.close()
    time.sleep(0.2)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    alive = [pid for pid in children.split() if b"mcp_server" in _command(pid)]
    assert not alive, marker


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_call_of_a_server_asks_even_in_auto_mode(open_rig) -> None:
    rig = open_rig([call("test.add", a=20, b=3), "It is 23."], mode=Mode.AUTO, servers=(_local(),))
    rig.ready()
    rig.send(Submit("add"))
    asked = rig.wait(ApprovalNeeded)
    assert asked.name == "test.add" and '"a": 20' in asked.detail and asked.rule == "test.add"
    rig.send(Answer(asked.call_id, True))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    rig.wait_idle()
    assert "<tool_response>\n23\n" in rig.said()


def test_missing_server_is_told_and_the_agent_works(open_rig) -> None:
    rig = open_rig(["Hi."], servers=(ServerSettings("gone", ("/no/such",), is_sandboxed=False),))
    rig.ready()
    assert any("gone is left out" in notice.text for notice in rig.of(Notice))
    assert rig.turn("hello").outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("a b", {"type": "object"}),
        ("x" * 65, {"type": "object"}),
        ("ok", {"type": "string"}),
        ("ok", {"type": "object", "properties": []}),
        ("ok", {"type": "object", "properties": {"a": {"description": "x" * 9000}}}),
    ],
)
def test_tool_that_cannot_be_offered_is_refused(name, schema) -> None:
    with pytest.raises(ToolError):
        McpTool("s", name, "", schema, lambda *_: (True, ""), 100)


def test_description_of_a_server_is_plain_and_short() -> None:
    tool = McpTool("s", "t", "\x1b[2Ja" * 2000, {"type": "object"}, lambda *_: (True, ""), 100)
    assert "\x1b" not in tool.description and len(tool.description) < 1100
