"""A real terminal for tests: a program in tmux, keys in, screen text out."""

import os
import pty
import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from ds4agent.tui.widgets.approval import GUARD_S


class Terminal:
    """One program in one tmux pane, with a server of its own."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        size: tuple[int, int] = (100, 30),
    ) -> None:
        self._socket = f"ds4-test-{uuid.uuid4().hex[:12]}"
        columns, rows = size
        assignments = [f"{name}={value}" for name, value in environment.items()]
        line = shlex.join(["env", *assignments, *command])
        self._tmux(
            *("-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(rows)),
            *("-c", str(cwd), f"{line}; echo exit=$?; exec sleep 600"),
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True)

    def type(self, text: str) -> None:
        """Send text as typed characters."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Send named keys: Enter, C-c, Escape, BTab."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window, as a person does who drags its edge."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def attach_and_detach(self) -> None:
        """Look at the pane with a client in a pseudo terminal of its own, and leave it again."""
        outer, inner = pty.openpty()
        client = subprocess.Popen(
            ["tmux", "-L", self._socket, "attach-session"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(inner)
        try:
            deadline = time.monotonic() + 10.0
            while not self._tmux("list-clients"):
                assert time.monotonic() < deadline, "tmux does not attach"
                time.sleep(0.05)
            self._tmux("detach-client", "-a")
            self._tmux("detach-client")
            client.wait(10.0)
        finally:
            client.kill()
            os.close(outer)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def wait_for(self, *texts: str, timeout_s: float = 20.0) -> str:
        """Return the screen once it shows every text; fail with the screen after the deadline."""
        return self._wait(lambda screen: all(text in screen for text in texts), texts, timeout_s)

    def wait_gone(self, text: str, timeout_s: float = 20.0) -> str:
        return self._wait(lambda screen: text not in screen, ("not", text), timeout_s)

    def answer(self, key: str, question: str, timeout_s: float = 20.0) -> None:
        """Press a key until the question is gone. A new question takes keys for typing ahead for a
        moment, and they would stay in the composer: this waits first."""
        time.sleep(2 * GUARD_S)
        deadline = time.monotonic() + timeout_s
        while question in self.screen():
            assert time.monotonic() < deadline, f"still asked:\n{self.screen()}"
            self.press(key)
            patience = time.monotonic() + 2.0
            while question in self.screen() and time.monotonic() < patience:
                time.sleep(0.05)

    def _wait(self, holds, wanted: tuple[str, ...], timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_s} s for {wanted}; the screen:\n{screen}")
            time.sleep(0.05)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
