"""The system call filter, run by a small interpreter for both processors."""

import errno
import struct

import pytest

from tools.errors import SandboxUnavailable
from tools.sandbox.seccomp import ARCHITECTURES, assemble_filter

ALLOW = "allow"
X86, ARM = "x86_64", "aarch64"


def judge(machine: str, call: int, *arguments: int, arch: int = 0) -> str | int:
    """Run the filter on one call: "allow", "kill", or the error number."""
    code = assemble_filter(machine)
    program = list(struct.iter_unpack("<HBBI", code))
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", call, arch or ARCHITECTURES[machine], 0, *padded)
    accumulator = 0
    index = 0
    while True:
        operation, jump_true, jump_false, k = program[index]
        index += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x15:
                index += jump_true if accumulator == k else jump_false
            case 0x35:
                index += jump_true if accumulator >= k else jump_false
            case 0x45:
                index += jump_true if accumulator & k else jump_false
            case 0x06:
                kinds = {0x7FFF0000: ALLOW, 0x80000000: "kill"}
                return kinds.get(k, k & 0xFFFF)


@pytest.mark.parametrize(
    ("machine", "call"),
    [(X86, 0), (X86, 1), (X86, 59), (X86, 257), (X86, 42), (ARM, 63), (ARM, 64), (ARM, 221),
     (ARM, 56), (ARM, 203)],
)  # fmt: skip
def test_ordinary_call_is_allowed(machine: str, call: int) -> None:
    assert judge(machine, call) == ALLOW


@pytest.mark.parametrize(
    ("machine", "call"),
    [(X86, 101), (X86, 310), (X86, 321), (X86, 298), (X86, 250), (X86, 165), (X86, 166),
     (X86, 272), (X86, 308), (X86, 323), (X86, 246), (X86, 155), (X86, 428),
     (ARM, 117), (ARM, 270), (ARM, 280), (ARM, 241), (ARM, 219), (ARM, 40), (ARM, 39),
     (ARM, 97), (ARM, 268), (ARM, 282), (ARM, 104), (ARM, 41), (ARM, 428)],
)  # fmt: skip
def test_dangerous_call_is_not_permitted(machine: str, call: int) -> None:
    assert judge(machine, call) == errno.EPERM


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize("call", [425, 426, 427, 435])
def test_call_with_a_safe_older_one_is_absent(machine: str, call: int) -> None:
    assert judge(machine, call) == errno.ENOSYS


@pytest.mark.parametrize(("machine", "call"), [(X86, 41), (ARM, 198)])
def test_sockets_are_of_the_internet_only(machine: str, call: int) -> None:
    allowed = [family for family in range(64) if judge(machine, call, family, 1) == ALLOW]
    assert allowed == [2, 10]


@pytest.mark.parametrize(("machine", "call"), [(X86, 53), (ARM, 199)])
def test_socket_pairs_are_connected_streams(machine: str, call: int) -> None:
    flags = 0o4000 | 0o2000000  # SOCK_NONBLOCK, SOCK_CLOEXEC
    for kind in (1, 5, 1 | flags):
        assert judge(machine, call, 1, kind) == ALLOW
    for family, kind in ((1, 2), (1, 2 | flags), (1, 3), (16, 1), (40, 1)):
        assert judge(machine, call, family, kind) == errno.EPERM


@pytest.mark.parametrize(("machine", "call"), [(X86, 56), (ARM, 220)])
def test_threads_and_forks_yes_namespaces_no(machine: str, call: int) -> None:
    for flags in (17, 0x3D0F00, 0x01200011):  # fork, a thread, fork with child ids
        assert judge(machine, call, flags) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(machine, call, 17 | flag) == errno.EPERM


@pytest.mark.parametrize(("machine", "call"), [(X86, 16), (ARM, 29)])
def test_typing_into_a_terminal_is_refused(machine: str, call: int) -> None:
    assert judge(machine, call, 0, 0x5401) == ALLOW  # read the settings
    for request in (0x5412, 0x541C, 0xFFFFFFFF00005412):  # the kernel ignores the high half
        assert judge(machine, call, 0, request) == errno.EPERM


def test_foreign_processors_are_killed_and_x32_is_absent() -> None:
    assert judge(X86, 0, arch=0x40000003) == "kill"  # 32-bit calls on x86-64
    assert judge(ARM, 0, arch=0x40000028) == "kill"
    assert judge(X86, 0x40000000 | 101) == errno.ENOSYS


def test_unknown_processor_has_no_filter_and_so_no_sandbox() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        assemble_filter("riscv64")
