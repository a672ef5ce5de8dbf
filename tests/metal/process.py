"""The parent's end of the worker process: sends jobs, waits with a time limit, starts it anew."""

import atexit
import pickle
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

_WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """One child process. A job that kills it or takes too long is an error text, no exception."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        atexit.register(self.close)

    def run(self, job: dict, timeout_s: float) -> dict:
        """Send one job and return its answer; {"error": text} when the process died or hung."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        data = pickle.dumps(job, protocol=5)
        try:
            process.stdin.write(struct.pack("<q", len(data)) + data)
            process.stdin.flush()
            deadline = time.monotonic() + timeout_s
            (length,) = struct.unpack("<q", self._read(8, deadline))
            return pickle.loads(self._read(length, deadline))
        except TimeoutError:
            self.close()
            return {"error": f"did not end within {timeout_s:g} s"}
        except (BrokenPipeError, EOFError):
            code = process.wait()
            self.close()
            return {"error": f"the process of the kernel ended with status {code}"}

    def _read(self, n_bytes: int, deadline: float) -> bytes:
        stream, parts = self._process.stdout, []
        while n_bytes:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = stream.raw.read(min(n_bytes, 1 << 20)) if hasattr(stream, "raw") else b""
            if not part:
                raise EOFError
            parts.append(part)
            n_bytes -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None
