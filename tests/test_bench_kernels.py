"""ds4-bench kernels: what is timed, how rates are counted, and the two outputs."""

import importlib.util
import json

import numpy as np
import pytest

from ds4agent.bench import cli, kernels
from ds4agent.bench.kernel_cases import OPERATIONS, Case, Prepared
from ds4agent.bench.kernel_shapes import SHAPE_SETS, cases
from ds4agent.bench.random_weights import random_matrix
from ds4agent.errors import Ds4Error
from mlx_kernels.blocks import BLOCK, can_dequantize, check_matrix, dequantize
from mlx_kernels.devices import open_ops
from mlx_kernels.errors import TensorError

TYPES = [type_id for type_id in BLOCK if can_dequantize(type_id)]
needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No timing is looked at here: a call or two of each case will do."""
    monkeypatch.setattr(kernels, "_MIN_RUN_S", 0.0)
    monkeypatch.setattr("ds4agent.bench.kernel_cases._ROTATED_BYTES", 1 << 20)
    monkeypatch.setattr("mlx_kernels.memory_copy._COPY_VALUES", 1 << 16)


@pytest.mark.parametrize("type_id", TYPES, ids=lambda type_id: BLOCK[type_id].name)
def test_random_weights_are_valid_and_finite(type_id):
    matrix = random_matrix(type_id, (8, 512), np.random.default_rng(1))
    check_matrix(matrix)
    values = dequantize(type_id, matrix.raw, matrix.shape)
    assert np.isfinite(values).all() and values.std() > 0 and np.abs(values).max() < 20


@pytest.mark.parametrize("shapes", sorted(SHAPE_SETS))
def test_every_shape_of_a_set_is_a_case(shapes):
    found = cases(shapes, [], [], [1])
    assert len(found) == len(SHAPE_SETS[shapes])
    assert {case.op for case in found} <= set(OPERATIONS)


def test_the_command_names_the_sets_and_operations_that_exist():
    assert set(cli._SHAPES) == set(SHAPE_SETS) and set(cli._OPERATIONS) == set(OPERATIONS)


def test_types_take_the_place_of_the_sets_own():
    found = cases("small", ["linear", "rope"], ["Q4_K", "F16"], [1, 7])
    assert {(case.type_name, case.n_positions) for case in found} == {
        ("Q4_K", 1), ("Q4_K", 7), ("F16", 1), ("F16", 7)
    }  # fmt: skip
    with pytest.raises(Ds4Error, match="unknown type 'Q9'"):
        cases("small", [], ["Q9"], [1])
    with pytest.raises(Ds4Error, match="no operation"):
        cases("small", ["rope"], ["Q4_K"], [1])


def test_bytes_and_operations_of_a_product_are_counted_by_hand():
    case = Case("linear", "w", (8,), (64, 32), 3)
    prepared = case.prepare(open_ops("cpu"), np.random.default_rng(0))
    assert prepared.n_bytes == 64 * 34 + 4 * 3 * (32 + 64)
    assert prepared.n_flops == 2 * 3 * 64 * 32
    assert len(prepared.calls) == 64  # copies, so that caches don't help


def test_a_mixture_reads_the_experts_that_positions_choose():
    case = Case("moe", "e", (8, 8), (4, 2, 32, 64), 1)
    prepared = case.prepare(open_ops("cpu"), np.random.default_rng(0))
    assert prepared.n_bytes == 2 * 3 * (32 * 64 // 32 * 34) + 2 * 4 * 32
    assert prepared.n_flops == 2 * 3 * 2 * 32 * 64


def test_rates_come_from_the_median():
    case = Case("linear", "w", (8,), (64, 32), 1)
    row = kernels.row_of(case, Prepared((), 4e6, 2e6, 0), [1e-3, 5e-3, 2e-3], 4e9)
    assert (row.median_us, row.best_us) == (pytest.approx(2000), pytest.approx(1000))
    assert (row.gb_per_s, row.gflop_per_s, row.share) == pytest.approx((2.0, 1.0, 0.5))


@pytest.mark.parametrize("device", ["cpu", pytest.param("mlx-cpu", marks=needs_mlx)])
def test_json_has_a_row_for_every_operation_and_type(capsys, device):
    assert cli.main(["kernels", "--device", device, "--repeat", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == device and told["copy_gb_per_s"] > 0 and told["failures"] == []
    assert {row["op"] for row in told["rows"]} == set(OPERATIONS)
    typed = {row["type"] for row in told["rows"] if row["op"] == "linear"}
    assert typed == {BLOCK[type_id].name for type_id in TYPES}
    assert all(row["median_us"] >= row["best_us"] > 0 for row in told["rows"])
    assert {"date", "machine", "versions", "shapes"} <= told.keys()


def test_csv_and_table_hold_the_same_rows(capsys):
    command = ["kernels", "--device", "cpu", "--op", "linear", "--type", "Q8_0", "--repeat", "1"]
    assert cli.main([*command, "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("device,op,tensor,type,shape,positions,median_us")
    assert lines[1].startswith("cpu,linear,matrix,Q8_0,512x512,1,")
    assert cli.main(command) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[2].split()[:5] == ["linear", "matrix", "Q8_0", "512x512", "1"]


def test_a_case_that_the_device_refuses_is_told_and_the_others_are_measured(monkeypatch, capsys):
    ops = open_ops("cpu")
    linear = ops.linear

    def refusing(x, weight):
        if x.shape[0] == 2:
            raise TensorError("no such kernel")
        return linear(x, weight)

    monkeypatch.setattr(ops, "linear", refusing, raising=False)
    monkeypatch.setattr("mlx_kernels.devices.open_ops", lambda device: ops)
    command = ["kernels", "--op", "linear", "--type", "Q8_0", "--positions", "1", "2", "--json"]
    assert cli.main(command) == 1
    told, error = capsys.readouterr()
    assert len(json.loads(told)["rows"]) == 1
    assert "linear matrix Q8_0: no such kernel" in error
