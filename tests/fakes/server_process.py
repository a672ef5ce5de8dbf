"""A real server in a process of its own, for tests: started with a script or a model file."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).parent.parent.parent
_PATIENCE_S = 60


class ServerProcess:
    """A running ``ds4-server``.

    Attributes:
        url: Where it answers.
    """

    def __init__(
        self,
        folder: Path,
        script: dict[str, Any] | None = None,
        arguments: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start it and wait until it listens.

        Args:
            folder: Gets its checkpoints, in ``kv``, and what it says.
            script: Arguments of ``scripted_engine``; None: ``arguments`` name a model.
            arguments: Of the command.
            environment: More variables.
        """
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ds4agent.server"]
        if script is not None:
            path = folder / "script.json"
            path.write_text(json.dumps(script), encoding="utf-8")
            command = [sys.executable, "-m", "tests.fakes.scripted_server", str(path), "--"]
        command += ["--port", "0", "--kv-disk-dir", str(folder / "kv"), *arguments]
        self._log = (folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=_ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **(environment or {})},
            text=True,
        )
        line = self.process.stdout.readline()
        if " at http" not in line:
            self.process.wait(_PATIENCE_S)
            said = (folder / "server.log").read_text(encoding="utf-8")
            raise AssertionError(f"the server did not start: {line}{said}")
        self.url = line.split(" at ")[1].split(" ")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """End it with a signal and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_PATIENCE_S)
        self.process.stdout.close()
        self._log.close()
        return code

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        """Send a request and return the JSON of the answer; raises HTTPError for a refusal."""
        return json.loads(self.read(path, body, headers))

    def read(self, path: str, body: Any, headers: dict[str, str] | None = None) -> bytes:
        """Send a request and return the bytes of the answer; raises HTTPError for a refusal."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {})
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return answer.read()

    def get(self, path: str) -> str:
        """Return what a path shows."""
        with urllib.request.urlopen(self.url + path, timeout=_PATIENCE_S) as answer:
            return answer.read().decode()

    def metric(self, name: str) -> float:
        """Return one value of ``/metrics``; 0 where it was never counted."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0.0

    def memory_mb(self) -> float:
        """Return the resident memory of the process in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
