"""How much memory is free, and whether a model fits, asked before anything is loaded."""

import bisect
import re
import subprocess
import sys
from pathlib import Path

from engine.errors import NotEnoughMemory
from engine.families.registry import ModelPlan
from mlx_kernels.ops import Ops

_MEMINFO = Path("/proc/meminfo")
_VM_STAT_TIMEOUT_S = 5.0
# Python, the tokenizer, a chunk's activations and the scores of long attention: 0.25 to 0.4 GiB
# measured with models of 0.1 to 1.5 billion weights.
_WORKING_BYTES = 400 << 20
# MLX and CUDA raise a RuntimeError with words such as "[malloc] Unable to allocate 12 bytes".
_ALLOCATION = re.compile(r"malloc|allocat|out of memory", re.IGNORECASE)
_CTX_STEP = 256  # tokens; a context that is offered is a multiple
_MIN_USEFUL_CTX = 1024  # tokens; a smaller context is not offered as a way out


def available_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """Memory that can be used without swapping; None where the system does not tell."""
    if sys.platform == "darwin":
        return _available_on_macos()
    try:
        text = meminfo.read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _available_on_macos() -> int | None:
    """Free, inactive, speculative and purgeable pages, as ``vm_stat`` counts them."""
    try:
        done = subprocess.run(
            ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=_VM_STAT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    page = re.search(r"page size of (\d+) bytes", done.stdout)
    counts = re.findall(
        r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)", done.stdout, re.M
    )
    return int(page[1]) * sum(map(int, counts)) if page and counts else None


def check_fits(
    plan: ModelPlan,
    ops: Ops,
    ctx: int,
    free: int | None,
    n_sessions: int = 1,
    n_copies: int = 0,
) -> None:
    """Check that weights and full sessions fit into ``free`` bytes (None: not known).

    Args:
        plan: Of the file.
        ops: The device.
        ctx: Tokens of a full session.
        free: Bytes of the machine's own memory; a device that has its own tells them itself.
        n_sessions: Sessions that are kept at the same time.
        n_copies: Of these, copied at the same time into the machine's own memory, to be saved.

    Raises:
        NotEnoughMemory: they do not. The hint says what would.
    """
    on_device = ops.free_bytes()
    budget = free if on_device is None else on_device
    if budget is None:
        return
    weights = plan.weight_bytes(ops)
    n_copied = n_copies if on_device is None else 0

    def needed_at(n_tokens: int, n_kept: int = n_sessions) -> int:
        states = (n_kept + n_copied) * plan.cache_bytes(ops, n_tokens)
        return weights + _WORKING_BYTES + states + plan.scratch_bytes(ops, n_tokens)

    needed = needed_at(ctx)
    if needed <= budget:
        return
    fewer = next((n for n in range(n_sessions - 1, 0, -1) if needed_at(ctx, n) <= budget), 0)
    # A search and no division: not every state grows by the same bytes with every token.
    choices = range(0, ctx, _CTX_STEP)
    n_fitting = bisect.bisect_right(choices, budget, key=needed_at)
    largest = choices[n_fitting - 1] if n_fitting else 0
    ways = [f"--live-sessions {fewer}"] if fewer else []
    ways += [f"--ctx {largest}"] if largest >= _MIN_USEFUL_CTX else []
    if ways:
        hint = f"Use {', '.join(ways)}, or a smaller model."
    else:
        hint = "Use a smaller model, or close other programs."
    several = f" for each of {n_sessions} conversations" if n_sessions > 1 else ""
    raise NotEnoughMemory(
        f"the model needs {_gib(needed)} at a context of {ctx} tokens{several} "
        f"({_gib(weights)} of it weights), "
        f"but {_gib(budget)} are available",
        hint,
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out while something was computed, on any device."""
    if isinstance(error, RuntimeError):
        return _ALLOCATION.search(str(error)) is not None
    return isinstance(error, MemoryError)


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"
