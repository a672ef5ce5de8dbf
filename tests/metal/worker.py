"""The child process that runs compiled kernels: a crash or an endless loop ends only this process.

Reads jobs (pickled, length first) from standard input and writes results to standard output.
"""

import _ctypes
import ctypes
import os
import pickle
import struct
import subprocess
import sys

import numpy as np

_ORDERS = {"ascending": 0, "descending": 1, "random": 2}


class Runtime:
    """The runtime library, loaded once, and the kernels loaded so far."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        library.rt_buffer_add.restype = ctypes.c_void_p
        library.rt_buffer_add.argtypes = [
            *(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
        ]
        library.rt_launch.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int),
        ]
        library.rt_error.restype = ctypes.c_char_p
        library.rt_error_address.restype = ctypes.c_size_t
        library.rt_threadgroup_bytes.restype = ctypes.c_size_t
        self._library = library
        self._kernels: dict[str, ctypes.CDLL] = {}

    def run(self, job: dict) -> dict:
        """Run one job; see ``launch.MetalKernel.run`` for its keys."""
        path = job["library"]
        if path not in self._kernels:
            self._kernels[path] = ctypes.CDLL(path)
        entry = ctypes.cast(self._kernels[path].kernel_entry, ctypes.c_void_p)
        pointers = []
        for name, kind, content in job["buffers"]:
            # kind: "input", "output" with a start value, or "empty" with a size.
            size = content if kind == "empty" else content.nbytes
            pointer = self._library.rt_buffer_add(
                size, name.encode(), kind != "input", kind != "empty"
            )
            if pointer is None:
                raise MemoryError(f"no memory for buffer {name} of {size} bytes")
            if kind != "empty":
                ctypes.memmove(pointer, content.ctypes.data, size)
            pointers.append((name, kind, pointer, size))
        self._library.rt_buffers_seal()
        three = ctypes.c_uint32 * 3
        failed = self._library.rt_launch(
            entry,
            ctypes.byref(three(*job["grid"])),
            ctypes.byref(three(*job["threadgroup"])),
            _ORDERS[job["order"]],
            job["seed"],
            job["build"] == "checked",
            job["allow_return"],
        )
        error = None
        if failed:
            error = self._library.rt_error().decode()
            line = self._line_of(self._library.rt_error_address(), path)
            error += f", {line}" if line else ""
        traffic, outputs = {}, {}
        for index, (name, kind, pointer, size) in enumerate(pointers):
            counts = (ctypes.c_uint64 * 4)()
            self._library.rt_traffic(index, counts)
            traffic[name] = tuple(counts)
            if kind != "input":
                outputs[name] = ctypes.string_at(pointer, size)
        threadgroup_bytes = self._library.rt_threadgroup_bytes()
        self._library.rt_buffers_free()
        if job["build"] == "counted":
            self._kernels[path].coverage_dump()
        if not job["keep"]:
            _ctypes.dlclose(self._kernels.pop(path)._handle)
        return {
            "error": error,
            "outputs": outputs,
            "traffic": traffic,
            "threadgroup_bytes": threadgroup_bytes,
        }

    def _line_of(self, address: int, path: str) -> str:
        """Source line of a code address of the kernel's library, or "" (needs addr2line)."""
        base = 0
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for entry in maps:
                if entry.rstrip().endswith(path):
                    base = int(entry.split("-")[0], 16)
                    break
        if not address or not base or address < base:
            return ""
        command = ["addr2line", "-i", "-e", path, hex(address - base - 1)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except OSError:
            return ""
        lines = [line.split("/")[-1].split(" (")[0] for line in done.stdout.splitlines()]
        ours = [line for line in lines if line.startswith(("body.metal", "header.metal"))]
        return ours[0] if ours else (lines[-1] if lines else "")


def serve() -> None:
    """Answer jobs until standard input ends."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    runtime: Runtime | None = None
    while header := source.read(8):
        job = pickle.loads(source.read(struct.unpack("<q", header)[0]))
        try:
            runtime = runtime or Runtime(job["runtime"])
            answer = runtime.run(job)
        except Exception as error:
            answer = {"error": f"harness: {type(error).__name__}: {error}", "harness": True}
        data = pickle.dumps(answer, protocol=5)
        sink.write(struct.pack("<q", len(data)) + data)
        sink.flush()


if __name__ == "__main__":
    np.seterr(all="ignore")
    serve()
