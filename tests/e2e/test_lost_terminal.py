"""What is left when the program is killed, or its terminal goes away, in mid answer."""

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 30.0
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"


class Screen:
    """The program with a scripted answer, in a pseudo-terminal."""

    def __init__(self, tmp_path: Path, home: Path) -> None:
        script = tmp_path / "script.json"
        words = " ".join(f"n{n}" for n in range(5000))
        script.write_text(json.dumps({"replies": [words], "delay_s": 0.005}), encoding="utf-8")
        command = [sys.executable, "-m", "tests.fakes.scripted_agent", str(script), "--", "count"]
        environment = {
            **os.environ,
            "DS4_HOME": str(home / "ds4"),
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
        }
        self.saved = home / "ds4" / "kvcache"
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(tmp_path)
            os.execve(sys.executable, command, environment)
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self._read(0.1)

    def wait_end(self) -> int:
        """Return the exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("the program did not end")
            self._read(0.05)

    def hang_up(self) -> None:
        os.close(self.terminal)
        self.terminal = -1

    def _read(self, timeout_s: float) -> None:
        if self.terminal < 0:
            time.sleep(timeout_s)
        elif select.select([self.terminal], [], [], timeout_s)[0]:
            try:
                self.shown += os.read(self.terminal, 65536)
            except OSError:  # the program has closed its side
                time.sleep(timeout_s)


def conversations(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.kv") if len(path.stem) == 40]


def test_kill_saves_and_restores_the_terminal(tmp_path: Path, isolated_home: Path) -> None:
    screen = Screen(tmp_path, isolated_home)
    screen.wait_for(b"n20")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.wait_end() == 0
    screen.wait_for(b"--resume")
    assert LEAVE_ALTERNATE_SCREEN in screen.shown
    assert conversations(screen.saved)


def test_hang_up_saves_and_ends(tmp_path: Path, isolated_home: Path) -> None:
    screen = Screen(tmp_path, isolated_home)
    screen.wait_for(b"n20")
    screen.hang_up()
    assert screen.wait_end() == 128 + signal.SIGHUP
    assert conversations(screen.saved)
