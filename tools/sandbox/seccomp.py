"""The system call filter of the sandbox, assembled as classic BPF.

A filter is a list of instructions of 8 bytes that the kernel runs on each system call. It sees the
call's number, the processor architecture, and the six arguments as 64-bit numbers, of which it
loads 32 bits at a time. It cannot follow pointers.

The filter allows everything but a list of calls: mounts and namespaces keep the file view as it
is, ``ptrace`` and its kin keep processes apart, ``io_uring`` would do file and socket work that no
filter sees, sockets exist for IPv4 and IPv6 only (the network namespace has nothing but its own
loopback), so there are no unix sockets, netlink or vsock. A pair of connected unix sockets is
allowed, as event loops need it, but not a pair of datagram sockets: those can still send to a
path.

Where there are no namespaces (``alone=False``), the filter has to keep apart what they would have:
no sockets at all, no System V or POSIX message queues, shared memory and semaphores by number, no
limits set on other processes. Nor may a command set the set-user-id bit of a file.
"""

import errno
import platform
import struct

from tools.errors import SandboxUnavailable

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_* of the kernel
_NUMBER, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data; both are little endian
_X32_BIT = 0x40000000  # a second numbering of the same calls on x86-64
_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_SOCK_TYPE_MASK = 0xF
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # both can type into a terminal

# name: (number on x86-64, number on arm64); None where the call does not exist.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
}
# Refused where no IPC namespace is: these reach other programs of the same person.
_SHARED: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
}
# Refused as "no such call", so that programs fall back to the older call the filter can judge.
_ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),  # its flags lie behind a pointer
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_CLONE, _IOCTL = (56, 220), (16, 29)
_PRLIMIT64 = (302, 261)
# Calls that set the mode of a file, and which argument it is.
_MODES: tuple[tuple[tuple[int | None, int | None], int], ...] = (
    ((90, None), 1),  # chmod
    ((91, 52), 1),  # fchmod
    ((268, 53), 2),  # fchmodat
    ((452, 452), 2),  # fchmodat2
)
_SET_ID_BITS = 0o6000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def assemble_filter(machine: str = "", *, alone: bool = True) -> bytes:
    """Return the filter for a machine name as ``uname`` gives it, default this one.

    Args:
        machine: the processor.
        alone: the command has process, network and IPC namespaces of its own.

    Raises:
        SandboxUnavailable: there is no filter for this machine.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailable(
            f"no system call filter for the processor {machine}",
            f"Commands run on {' and '.join(ARCHITECTURES)} only.",
        )
    column = list(ARCHITECTURES).index(machine)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_GREATER_EQUAL, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    refused = _REFUSED if alone else _REFUSED | _SHARED
    for calls, number in ((refused, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in calls.values():
            call = numbers[column]
            if call is not None:
                program += [(_EQUAL, 0, 1, call), _refuse(number)]
    program += _when(_SOCKET[column], _socket_rule() if alone else [_refuse(errno.EPERM)])
    program += _when(_SOCKETPAIR[column], _socketpair_rule())
    program += _when(_CLONE[column], _clone_rule())
    program += _when(_IOCTL[column], _ioctl_rule())
    if not alone:
        program += _when(_PRLIMIT64[column], _own_process_rule())
        for numbers, index in _MODES:
            call = numbers[column]
            if call is not None:
                program += _when(call, _set_id_rule(index))
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _when(call: int, rule: list[Instruction]) -> list[Instruction]:
    """Run a rule, which must return, for one call; the number is loaded and stays loaded else."""
    return [(_EQUAL, 0, len(rule), call), *rule]


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGS + 8 * index)  # the low half; the kernel ignores the high one here


def _socket_rule() -> list[Instruction]:
    return [
        _argument(0),
        (_EQUAL, 2, 0, _AF_INET),
        (_EQUAL, 1, 0, _AF_INET6),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _socketpair_rule() -> list[Instruction]:
    return [
        _argument(0),
        (_EQUAL, 0, 4, _AF_UNIX),
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_EQUAL, 2, 0, _SOCK_STREAM),
        (_EQUAL, 1, 0, _SOCK_SEQPACKET),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _clone_rule() -> list[Instruction]:
    return [
        _argument(0),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _ioctl_rule() -> list[Instruction]:
    return [
        _argument(1),
        (_EQUAL, 1, 0, _TIOCSTI),
        (_EQUAL, 0, 1, _TIOCLINUX),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _own_process_rule() -> list[Instruction]:
    return [
        _argument(0),
        (_EQUAL, 1, 0, 0),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _set_id_rule(index: int) -> list[Instruction]:
    return [
        _argument(index),
        (_ANY_BIT, 0, 1, _SET_ID_BITS),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
