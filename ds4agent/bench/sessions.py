"""How fast conversations of DeepSeek V4 Flash are saved, loaded, appended to and exported.

Beside each number stands what the disk does in the same minute: a file of the same size is written
front to back in large pieces with fsync, and read with nothing of it in memory. Disks of rented
machines change their speed from minute to minute, so all of this takes turns in every round, and
medians of ratios are told.

    save    ``SessionStore.save``: rows to float32, SHA-256, write, fsync, rename, fsync
    load    ``SessionStore.restore`` after the file was dropped from memory: read, SHA-256, checks,
            rows to float16
    append  ``Keeper.append`` of one turn: write and fdatasync
    export  ``transfer.export_session`` and ``import_session``, file in memory
"""

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ds4agent.bench.session_states import delta_between, flash_state
from sessions import transfer
from sessions.journal import tokens_sha256
from sessions.keeper import Keeper
from sessions.record import SessionMeta
from sessions.store import SessionStore

TURN_TOKENS = 500
PREFILL_TOKENS_PER_S = 1400  # of a fast machine; what a load is compared with
_TEXT_BYTES_A_TOKEN = 4
_PIECE_BYTES = 8 << 20  # written at a time
# Read at a time. The fastest plain way of several: 1.58 GB/s, where 8 MiB at a time without the
# advice below gave 0.89 and two to four threads 0.51 to 0.88 (2026-12-03).
_READ_BYTES = 1 << 20
_META = SessionMeta("/bench", "v4-flash")


@dataclass(frozen=True, slots=True)
class Row:
    """One length of conversation. Rates in MB/s; shares are medians over the rounds."""

    tokens: int
    kv_bytes: int
    save_s: float
    save_rate: float
    write_rate: float  # of the disk
    save_share: float  # save beside the disk's writing
    save_cpu_s: float  # of all cores: what it takes when others use the machine too
    load_s: float
    load_rate: float
    read_rate: float
    load_share: float
    load_cpu_s: float
    prefill_ratio: float  # the prefill's seconds beside the load's
    append_bytes: int
    append_s: float
    export_bytes: int
    export_ratio: float  # beside kv_bytes
    export_s: float
    import_s: float


def measure(
    lengths: list[int], rounds: int, folder: Path, progress: Callable[[str], None]
) -> list[Row]:
    """Measure each length.

    Args:
        lengths: tokens.
        rounds: how often everything takes its turn.
        folder: on the disk to be measured.
        progress: called with lines for the person.
    """
    rows = []
    for n_tokens in lengths:
        with tempfile.TemporaryDirectory(prefix="ds4-bench-", dir=folder) as place:
            rows.append(_measure(n_tokens, rounds, Path(place), progress))
    return rows


def table(rows: list[Row]) -> str:
    """Return the table for people."""
    head = (
        "| tokens | .kv MB | save s (cpu) | MB/s | of disk | load s (cpu) | MB/s | of disk "
        "| prefill/load "
        "| append MiB | s | export of .kv | export s | import s |"
    )
    lines = [head, "|" + "--:|" * 14]
    for row in rows:
        lines.append(
            f"| {row.tokens:,} | {row.kv_bytes / 1e6:,.1f} "
            f"| {row.save_s:.2f} ({row.save_cpu_s:.2f}) | {row.save_rate:,.0f} "
            f"| {row.save_share:.0%} | {row.load_s:.2f} ({row.load_cpu_s:.2f}) "
            f"| {row.load_rate:,.0f} | {row.load_share:.0%} | {row.prefill_ratio:.0f}x "
            f"| {row.append_bytes / 2**20:.1f} | {row.append_s:.2f} | {row.export_ratio:.3f} "
            f"| {row.export_s:.2f} | {row.import_s:.2f} |"
        )
    disk = [f"{row.write_rate:,.0f}/{row.read_rate:,.0f}" for row in rows]
    return "\n".join([*lines, f"disk beside each line, MB/s written/read: {', '.join(disk)}"])


def as_objects(rows: list[Row]) -> list[dict[str, object]]:
    """Return the rows for JSON."""
    return [asdict(row) for row in rows]


def _measure(n_tokens: int, rounds: int, place: Path, progress: Callable[[str], None]) -> Row:
    progress(f"{n_tokens} tokens: making the state")
    state = flash_state(n_tokens)
    text = secrets.token_hex(n_tokens * _TEXT_BYTES_A_TOKEN // 2).encode()
    store = SessionStore(place / "kvcache")
    write_s, save_s, read_s, load_s = [], [], [], []
    save_cpu_s, load_cpu_s = [], []
    for n in range(rounds):
        progress(f"{n_tokens} tokens: round {n + 1} of {rounds}")
        saved = None
        with _timed(save_s, save_cpu_s):
            saved = store.save(state, text, title="bench", created_at=1, meta=_META)
        plain = place / "plain"
        write_s.append(_write_plain(plain, saved.n_bytes))
        _drop(plain)
        read_s.append(_read_plain(plain))
        plain.unlink()
        _drop(saved.path)
        with _timed(load_s, load_cpu_s):
            restored = store.restore(saved.id)
        assert restored.state.tokens == state.tokens
    progress(f"{n_tokens} tokens: append and export")
    keeper = Keeper(store, title="bench", created_at=1, meta=_META, restored=restored)
    del restored
    after = flash_state(n_tokens + TURN_TOKENS)
    delta = delta_between(state, after)
    turn_text = secrets.token_hex(TURN_TOKENS * _TEXT_BYTES_A_TOKEN // 2).encode()
    digest, append_s = tokens_sha256(after.tokens), []
    with _timed(append_s):
        append_bytes = keeper.append(delta, turn_text, len(text), kind="turn", tokens_sha256=digest)
    keeper.close()
    (place / "kvcache" / f"{saved.id}.kv.journal").unlink()
    export_s, import_s, other = [], [], SessionStore(place / "other")
    with _timed(export_s):
        exported = transfer.export_session(store, saved.id, place / "bench.ds4session")
    with _timed(import_s):
        transfer.import_session(other, exported.path)
    size = saved.n_bytes
    return Row(
        tokens=n_tokens,
        kv_bytes=size,
        save_s=median(save_s),
        save_rate=_rate(size, save_s),
        write_rate=_rate(size, write_s),
        save_share=median(w / s for w, s in zip(write_s, save_s, strict=True)),
        save_cpu_s=median(save_cpu_s),
        load_s=median(load_s),
        load_rate=_rate(size, load_s),
        read_rate=_rate(size, read_s),
        load_share=median(r / s for r, s in zip(read_s, load_s, strict=True)),
        load_cpu_s=median(load_cpu_s),
        prefill_ratio=n_tokens / PREFILL_TOKENS_PER_S / median(load_s),
        append_bytes=append_bytes,
        append_s=append_s[0],
        export_bytes=exported.n_bytes,
        export_ratio=exported.n_bytes / size,
        export_s=export_s[0],
        import_s=import_s[0],
    )


@contextlib.contextmanager
def _timed(seconds: list[float], cpu_seconds: list[float] | None = None) -> Iterator[None]:
    start, cpu_start = time.perf_counter(), time.process_time()
    yield
    seconds.append(time.perf_counter() - start)
    if cpu_seconds is not None:
        cpu_seconds.append(time.process_time() - cpu_start)


def _rate(n_bytes: int, seconds: list[float]) -> float:
    return n_bytes / median(seconds) / 1e6


def _write_plain(path: Path, n_bytes: int) -> float:
    piece = secrets.token_bytes(_PIECE_BYTES)
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for at in range(0, n_bytes, _PIECE_BYTES):
            file.write(piece[: n_bytes - at])
        os.fsync(file.fileno())
    return time.perf_counter() - start


def _read_plain(path: Path) -> float:
    memory = bytearray(_READ_BYTES)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while file.readinto(memory):
            pass
    return time.perf_counter() - start


def _drop(path: Path) -> None:
    """Take a file out of memory, so that the next reading comes from the disk.

    Without ``posix_fadvise`` (macOS) it stays, and the reading is that of memory.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
