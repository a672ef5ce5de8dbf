"""The program is killed, or its terminal goes away, in each phase of its work, on each screen.

It ends soon, the conversation is saved, no process stays behind, and the terminal is as before.
"""

import fcntl
import json
import os
import pty
import random
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 30.0
# About 2 s on an idle machine; the tests share theirs. What does not end at all is what they find.
END_S = 8.0
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
WHERE_IS_THE_CURSOR, CURSOR = b"\x1b[6n", b"\x1b[1;1R"

SCREENS = ("full", "inline", "dumb")
WAYS = ("kill", "hang-up", "gone", "gone unsaid")
WORDS = " ".join(f"n{n}" for n in range(5000))


def _call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


# Phase: the script, what is typed, and what is shown then.
PHASES: dict[str, tuple[dict, str, bytes]] = {
    "loading": ({"replies": [], "load_s": 60.0}, "", b"loading"),
    "idle": ({"replies": ["Hello, I am here."]}, "say hello", b"I am here"),
    "generating": ({"replies": [WORDS], "delay_s": 0.005}, "count", b"n20"),
    "question": ({"replies": [_call("write", path="a.txt", content="x")]}, "write", b"[y]es"),
    "tool": ({"replies": [_call("bash", command="echo begun; SLEEP")]}, "run", b"bash"),
}


class Screen:
    """The program with a scripted model, in a pseudo-terminal."""

    def __init__(
        self, tmp_path: Path, home: Path, screen: str, phase: str, *, is_controlling: bool = True
    ) -> None:
        self.marker = str(random.randrange(10**8, 10**9))
        spec, self._typed, self._sign = PHASES[phase]
        if (screen, phase) == ("full", "question"):
            self._sign = b"yes, once"
        replies = [reply.replace("SLEEP", f"sleep {self.marker}") for reply in spec["replies"]]
        script = tmp_path / "script.json"
        script.write_text(json.dumps(spec | {"replies": replies}), encoding="utf-8")
        command = [sys.executable, "-m", "tests.fakes.scripted_agent", str(script), "--"]
        command += ["--inline"] if screen == "inline" else []
        command += ["--approval", "auto"] if phase == "tool" else []
        environment = {
            **os.environ,
            "DS4_HOME": str(home / "ds4"),
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb" if screen == "dumb" else "xterm-256color",
        }
        self.saved = home / "ds4" / "kvcache"
        self.shown = b""
        self.pid, self.terminal = pty.fork() if is_controlling else _fork_without_control()
        if self.pid == 0:
            os.chdir(tmp_path)
            os.execve(sys.executable, command, environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))

    def reach_phase(self) -> None:
        if not self._typed:
            self.wait_for(self._sign)
            return
        self.wait_for(b"type a message")
        time.sleep(0.2)
        os.write(self.terminal, self._typed.encode())
        self.wait_for(self._typed.encode())
        os.write(self.terminal, b"\r")
        self.wait_for(self._sign)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self._read(0.1)

    def wait_end(self, *, is_read: bool = True) -> int:
        """Return the exit code."""
        deadline = time.monotonic() + END_S
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"the program did not end: {self.shown[-2000:]}")
            self._read(0.05) if is_read else time.sleep(0.05)

    def end(self, way: str) -> None:
        match way:
            case "kill":
                os.kill(self.pid, signal.SIGTERM)
            case "hang-up":
                os.kill(self.pid, signal.SIGHUP)
            case _:
                os.close(self.terminal)
                self.terminal = -1

    def conversations(self) -> list[Path]:
        return [path for path in self.saved.glob("*.kv") if len(path.stem) == 40]

    def left_processes(self) -> list[bytes]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes()
            except OSError:
                continue
            if self.marker.encode() in line:
                found.append(line)
        return found

    def _read(self, timeout_s: float) -> None:
        if self.terminal < 0:
            time.sleep(timeout_s)
        elif select.select([self.terminal], [], [], timeout_s)[0]:
            try:
                piece = os.read(self.terminal, 65536)
                self.shown += piece
                if WHERE_IS_THE_CURSOR in piece:
                    os.write(self.terminal, CURSOR)
            except OSError:  # the program has closed its side
                time.sleep(timeout_s)


def _fork_without_control() -> tuple[int, int]:
    """As ``pty.fork``, but the terminal has no session, so that nobody gets a signal for it."""
    outer, inner = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number in (0, 1, 2):
            os.dup2(inner, number)
    os.close(inner)
    return pid, outer


def _ends(tmp_path: Path, home: Path, screen: str, phase: str, way: str) -> None:
    is_controlling = way != "gone unsaid"
    program = Screen(tmp_path, home, screen, phase, is_controlling=is_controlling)
    program.reach_phase()
    program.end(way)
    is_gone = way in ("gone", "gone unsaid")
    assert program.wait_end() == (128 + signal.SIGHUP if is_gone else 0)
    assert bool(program.conversations()) == (phase != "loading")
    deadline = time.monotonic() + END_S
    while program.left_processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not program.left_processes()
    if not is_gone and phase != "loading":
        program.wait_for(b"--resume")
    if not is_gone and screen == "full":
        assert LEAVE_ALTERNATE_SCREEN in program.shown


QUICK = [
    ("full", "loading", "kill"),
    ("full", "generating", "kill"),
    ("full", "question", "gone"),
    ("full", "idle", "gone unsaid"),
    ("inline", "generating", "hang-up"),
    ("inline", "tool", "gone"),
    ("dumb", "generating", "gone"),
]
REST = [
    (screen, phase, way)
    for screen in SCREENS
    for phase in PHASES
    for way in WAYS
    if (screen, phase, way) not in QUICK
    and (screen, phase) != ("dumb", "loading")  # it shows nothing then that could be waited for
]


@pytest.mark.parametrize(("screen", "phase", "way"), QUICK)
def test_ends_soon_and_saves(tmp_path, isolated_home, screen, phase, way) -> None:
    _ends(tmp_path, isolated_home, screen, phase, way)


@pytest.mark.slow
@pytest.mark.parametrize(("screen", "phase", "way"), REST)
def test_ends_soon_and_saves_everywhere(tmp_path, isolated_home, screen, phase, way) -> None:
    _ends(tmp_path, isolated_home, screen, phase, way)


def test_ends_though_nobody_reads_the_terminal(tmp_path: Path, isolated_home: Path) -> None:
    program = Screen(tmp_path, isolated_home, "full", "generating")
    program.reach_phase()
    time.sleep(3.0)  # what is drawn meanwhile fills the terminal, and the screen waits in writing
    program.end("kill")
    assert program.wait_end(is_read=False) == 128 + signal.SIGTERM
    assert program.conversations()


def test_ends_while_the_editor_is_open(tmp_path, isolated_home, monkeypatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho editing $1\nexec sleep $MARKER\n", encoding="utf-8")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setenv("MARKER", marker := str(random.randrange(10**8, 10**9)))
    program = Screen(tmp_path, isolated_home, "full", "idle")
    program.marker = marker
    program.wait_for(b"type a message")
    os.write(program.terminal, b"\x07")  # Ctrl+G
    program.wait_for(b"editing ")
    program.end("kill")
    assert program.wait_end() == 0
    assert not program.left_processes()


@pytest.mark.parametrize("screen", ["full", "inline"])
def test_ctrl_c_twice_ends_a_model_that_loads(tmp_path, isolated_home, screen) -> None:
    program = Screen(tmp_path, isolated_home, screen, "loading")
    program.reach_phase()
    os.write(program.terminal, b"\x03")
    program.wait_for(b"again to ")
    os.write(program.terminal, b"\x03")
    assert program.wait_end() == 0
