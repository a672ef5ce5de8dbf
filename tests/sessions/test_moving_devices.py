"""A conversation that was exported on one device goes on, without prefill, on another one.

The tie rule. The file is lossless, so what may differ afterwards is arithmetic. Two devices that
multiply exactly differ by the order of their float32 sums. In DeepSeek V4 that moves a stored value
to the next step of its grid now and then, which a later token may feel: over 64 tokens the logits
came 0.0015 of their span apart at most (mlx-cpu and cpu, 2026-12-03). A token that is chosen
differently counts as a tie where both devices hold the two candidates within ``TIE`` of the span,
and no logit may differ by more than that.

The cpu device by default rounds activations of up to 16 positions to 8 bits. That is other
arithmetic, and in a random mixture of experts it changes some choices, whether or not anything
was moved. The last test shows that the move adds nothing to it.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine.engine import Engine
from engine.families.base import Model
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.session import Session
from engine.state import SessionState
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.devices import open_ops
from sessions import transfer
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.fakes.tiny_gguf import write_tiny_gguf
from tests.sessions.states import assert_same

V4 = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"
TIE = 0.005  # of the logits' span
PROMPT = np.random.default_rng(3).integers(0, 250, 150).tolist()  # more than V4's window
CTX = 512


class Devices(NamedTuple):
    """One model, loaded three times."""

    models: dict[str, Model]  # "cpu": exact products; "cpu-int8": as by default; "mlx-cpu"
    tokenizer: Any
    fingerprint: str

    def session(self, device: str) -> Session:
        return Session(self.models[device], self.tokenizer, (), CTX, self.fingerprint)

    def restore(self, device: str, state: SessionState) -> Session:
        session = self.session(device)
        session.load(state)
        return session


@pytest.fixture(scope="module", params=["llama", "deepseek_v4"])
def devices(request, tmp_path_factory) -> Iterator[Devices]:
    path = V4
    if request.param == "llama":
        path = write_tiny_gguf(tmp_path_factory.mktemp("m") / "m.gguf", quant="F16")
    with Engine.open(path, "cpu", CTX) as engine, GgufFile.open(path) as gguf:
        plan = plan_for(gguf)
        ops = {
            "cpu": CpuOps(exact_products=True),
            "cpu-int8": CpuOps(),
            "mlx-cpu": open_ops("mlx-cpu"),
        }
        models = {name: plan.load(each, None, None) for name, each in ops.items()}
        yield Devices(models, engine.tokenizer, engine.info.fingerprint)


def tie(left: np.ndarray, right: np.ndarray) -> float:
    """How much likelier, in logits, each takes its own next token to be than the other's."""
    ours, theirs = int(left.argmax()), int(right.argmax())
    return max(abs(float(logits[ours] - logits[theirs])) for logits in (left, right))


def span(logits: np.ndarray) -> float:
    return float(np.ptp(logits))


class Beside(NamedTuple):
    """How two sessions compare before each of some tokens, in parts of the first logits' span."""

    ties: list[float]  # see ``tie``
    apart: list[float]  # the largest difference of a logit


def beside(one: Session, other: Session, n_tokens: int) -> Beside:
    """Let both read the greedy tokens of ``one``."""
    found, unit = Beside([], []), span(one.logits)
    for _ in range(n_tokens):
        found.ties.append(tie(one.logits, other.logits) / unit)
        found.apart.append(float(np.abs(one.logits - other.logits).max()) / unit)
        token = int(one.logits.argmax())
        one.extend([token])
        other.extend([token])
    return found


def sent(state: SessionState, folder: Path) -> SessionState:
    """Save, export, import in another store, and load."""
    here, there = SessionStore(folder / "here"), SessionStore(folder / "there")
    saved = here.save(state, b"text", title="t", created_at=1, meta=SessionMeta())
    path = transfer.export_session(here, saved.id, folder / "s").path
    record = transfer.import_session(there, path)
    assert record.fingerprint == state.fingerprint
    return there.load(record.id)[0]


@pytest.mark.parametrize("n_greedy", [6, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("here, there", [("cpu", "mlx-cpu"), ("mlx-cpu", "cpu")])
def test_the_next_tokens_are_the_same_on_the_other_device(
    devices, here, there, n_greedy, tmp_path
) -> None:
    session = devices.session(here)
    session.sync(PROMPT)
    state = session.state()
    moved = sent(state, tmp_path)
    assert_same(moved, state)
    again, stayed = devices.restore(there, moved), devices.restore(there, state)
    assert np.array_equal(again.logits, session.logits)  # nothing was computed
    back = again.state()
    assert all(np.array_equal(back.arrays[name], array) for name, array in state.arrays.items())
    found = beside(session, again, n_greedy)
    assert max(found.ties) <= TIE
    assert max(found.apart) <= TIE
    assert sum(gap == 0 for gap in found.ties) >= n_greedy - 2  # ties are rare
    for token in session.tokens[len(PROMPT) :]:
        stayed.extend([token])
    assert np.array_equal(again.logits, stayed.logits)  # the file changes nothing


def rolled(name: str) -> Callable[[SessionState], dict[str, np.ndarray]]:
    return lambda state: {name: np.roll(state.arrays[name], 1, axis=0)}


def emptied(name: str) -> Callable[[SessionState], dict[str, np.ndarray]]:
    return lambda state: {name: np.zeros_like(state.arrays[name])}


@pytest.mark.parametrize(
    "damage",
    [
        rolled("layers.1.k"),
        emptied("layers.0.v"),
        rolled("layers.3.window"),
        emptied("layers.2.window"),
        rolled("layers.2.compressed"),
        emptied("layers.2.compressor.kv"),
        emptied("layers.3.compressed"),
    ],
)
def test_the_tie_rule_finds_a_wrong_state(devices, damage, tmp_path) -> None:
    """One array of one layer, rows by one place too far or empty, is enough to break it."""
    session = devices.session("cpu")
    session.sync(PROMPT)
    state = session.state()
    try:
        changed = damage(state)
    except KeyError:
        return  # an array of the other family
    wrong = dataclasses.replace(state, arrays={**state.arrays, **changed})
    again = devices.restore("mlx-cpu", sent(wrong, tmp_path))
    assert max(beside(session, again, 8).apart) > 2 * TIE


@pytest.mark.parametrize("n_greedy", [6, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("here, there", [("cpu-int8", "mlx-cpu"), ("mlx-cpu", "cpu-int8")])
def test_what_8_bit_activations_change_the_move_does_not_add_to(
    devices, here, there, n_greedy, tmp_path
) -> None:
    session = devices.session(here)
    session.sync(PROMPT)
    state = session.state()
    moved = sent(state, tmp_path)
    # Both arithmetics, and both devices, on the tokens of the one that stayed where it was.
    rounded, exact = devices.restore("cpu-int8", state), devices.restore("cpu", state)
    again = devices.restore(there, moved)
    beside_exact, beside_moved, of_arithmetic, unit = [], [], [], span(session.logits)
    for _ in range(n_greedy):
        float_logits = again.logits if there == "mlx-cpu" else session.logits
        beside_exact.append(tie(exact.logits, float_logits))
        beside_moved.append(tie(session.logits, again.logits))
        of_arithmetic.append(tie(rounded.logits, exact.logits))
        token = int(session.logits.argmax())
        for each in (session, again, rounded, exact):
            each.extend([token])
    # The float device goes on as the exact cpu does, from a state that was moved or not ...
    line = TIE * unit
    assert max(beside_exact) <= line
    # ... so what differs between the devices differs on the cpu alone, as often and as far.
    beyond = [sum(gap > line for gap in gaps) for gaps in (beside_moved, of_arithmetic)]
    assert abs(beyond[0] - beyond[1]) <= 1
    assert max(beside_moved) <= max(of_arithmetic) + 2 * line
    assert sum(gap == 0 for gap in beside_moved) > n_greedy // 2
