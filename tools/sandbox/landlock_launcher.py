"""The small program that confines itself with Landlock and a system call filter, then runs a shell.

It runs in a Python without our packages (``python -I -S``), so it uses the standard library only.
It stays outside the confinement as the parent of the shell: there is no process namespace, so it
adopts what the command leaves behind and ends all of it, when the shell ends, on SIGTERM, or when
the program that started it is gone. A confined process can neither signal nor trace it.

Ending all of it is one system call: the launcher puts itself into a Landlock domain of its own,
whose only rule is that no signal leaves it. The command's domain lies inside of that one. So
``kill(-1)`` of the launcher reaches the command's processes and nothing else, all at one moment,
however fast they multiply. That the rule holds is tried before anything is started.

The job is a dictionary, see ``landlock.Landlock.launch``.

Every command waits for this program to start. Importing ``ctypes`` and ``signal`` would add 11 ms
(2026-12-03, two cores), so the built-in modules below them are used.
"""

import _ctypes
import _signal
import os
import stat
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on x86-64 and arm64
_RULE_PATH_BENEATH = 1
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 36, 38, 22
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT = 24, 28, 47
_PR_CAP_AMBIENT_CLEAR_ALL, _SECCOMP_MODE_FILTER = 4, 2
_SECURE_ALL = 0x2F  # no special root, no capabilities kept over a change of user; locked
_CAPABILITY_VERSION_3 = 0x20080522
_CLOSE_RANGE, _CLOSE_ON_EXEC = 436, 4
_SCOPE_SIGNAL = 0b10  # LANDLOCK_SCOPE_SIGNAL
_POLL_S = 0.25  # how late the end of our parent may be seen
_WAKING = {_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP}
Job = dict[str, object]


class _Long(_ctypes._SimpleCData):
    _type_ = "l"


class _CharPointer(_ctypes._SimpleCData):
    _type_ = "z"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_LIBRARY = _ctypes.dlopen(None, 0)
_FUNCTIONS = {
    name: _Function(_ctypes.dlsym(_LIBRARY, name)) for name in ("syscall", "prctl", "capset")
}


def _call(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library; bytes are passed as a pointer to them."""
    converted = [_Long(value) if isinstance(value, int) else value for value in arguments]
    # The result of prctl and capset is an int: the upper half of the register means nothing.
    result = _FUNCTIONS[name](*converted) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


def _u64(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, sys.byteorder) for value in values)


def main(job: Job) -> int:
    """Do the job; returns the exit code of this program, 0 when the command could be started."""
    if os.getppid() != job["parent"]:
        return 1  # it ended before we began
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _WAKING)
    _checked(_call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "becoming a sub-reaper")
    _tell(job, "child-pid", os.getpid())
    code = None
    _enter_own_domain(job["parent"])
    temporary = job["temporary"]
    os.mkdir(temporary, 0o700)
    failure = ""
    try:
        os.mkdir(f"{temporary}/home", 0o700)
        if job["user"] is not None:
            for folder in (f"{temporary}/home", temporary):
                os.chown(folder, *job["user"])
        ruleset = _ruleset(job)
        read_end, write_end = os.pipe()  # closed by a successful exec
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _become_command(job, ruleset, write_end)
        os.close(write_end)
        os.close(ruleset)
        code = _wait(child, job["parent"])
        with os.fdopen(read_end, "rb") as errors:
            failure = errors.read().decode("utf-8", "replace") if _is_ready(read_end) else ""
    except OSError as error:
        failure = str(error)
    finally:
        _sweep(job["parent"])
        _remove(temporary)
    if failure:
        sys.stderr.write(failure + "\n")
        return 1
    if code is not None:
        _tell(job, "exit-code", code)
    return 0


def _tell(job: Job, key: str, value: int) -> None:
    os.write(job["status"], f'{{"{key}": {value}}}\n'.encode())


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


# --- confining ------------------------------------------------------------------------------------


def _ruleset(job: Job) -> int:
    attributes = _u64(job["files"], job["network"], job["scoped"])  # struct landlock_ruleset_attr
    ruleset = _checked(
        _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0),
        "creating a Landlock ruleset",
    )
    for path, rights in (*job["rules"], (job["temporary"], job["temporary_rights"])):
        try:
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or not reachable for this user: then the command needs no right
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            rule = _u64(rights) + fd.to_bytes(4, sys.byteorder)  # struct landlock_path_beneath_attr
            _checked(
                _call("syscall", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0),
                f"adding a Landlock rule for {path}",
            )
        os.close(fd)
    return ruleset


def _become_command(job: Job, ruleset: int, errors: int) -> None:
    """Confine this process and replace it by the shell; never returns."""
    try:
        _checked(
            _call("syscall", _CLOSE_RANGE, 3, 0xFFFFFFFF, _CLOSE_ON_EXEC),
            "closing descriptors",
        )
        _limit(job)
        os.chdir(job["root"])
        _drop_privileges(job["user"])
        _checked(_call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "giving up new privileges")
        _checked(_call("syscall", _RESTRICT_SELF, ruleset, 0), "restricting by Landlock")
        steps = _CharPointer(job["filter"])
        program = _u64(len(job["filter"]) // 8) + bytes(memoryview(steps))  # struct sock_fprog
        _checked(
            _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0),
            "installing the system call filter",
        )
        # What Python or whoever started us ignores would stay ignored over an exec.
        for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _WAKING)
        os.execve(job["shell"], [job["shell"], "-c", job["command"]], job["environment"])
    except BaseException as error:
        os.write(errors, str(error).encode("utf-8", "replace")[:2000] or b"unknown failure")
    finally:
        os._exit(127)


def _limit(job: Job) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = job["file_bytes"]
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:  # first to go when the machine runs out of memory
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _drop_privileges(user: tuple[int, int] | None) -> None:
    # A child of root loses all capabilities here, or by the change of user; anybody else has none.
    if os.geteuid() == 0:
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        for capability in range(64):
            if _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
                break
        if user is None:
            _call("prctl", _PR_SET_SECUREBITS, _SECURE_ALL, 0, 0, 0)
    if user is not None:
        os.setgroups([])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])
    header = _u64(_CAPABILITY_VERSION_3)  # of this process: the upper half is 0
    _checked(_call("capset", header, bytes(24)), "dropping capabilities")


# --- ending ---------------------------------------------------------------------------------------


def _wait(child: int, parent: int) -> int | None:
    """Wait for the shell; None when it was stopped instead."""
    while True:
        signal_info = _signal.sigtimedwait(_WAKING, _POLL_S)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        if signal_info is not None and signal_info.si_signo != _signal.SIGCHLD:
            return None
        if os.getppid() != parent:
            return None


def _enter_own_domain(parent: int) -> None:
    """Make sure that no signal of this process and its children reaches anything else."""
    attributes = _u64(0, 0, _SCOPE_SIGNAL)
    ruleset = _checked(
        _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0),
        "creating a Landlock domain for signals",
    )
    _checked(_call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "giving up new privileges")
    _checked(_call("syscall", _RESTRICT_SELF, ruleset, 0), "keeping signals inside")
    os.close(ruleset)
    if not _is_out_of_reach(parent):
        raise OSError(0, "Landlock does not keep signals inside")


def _is_out_of_reach(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return pid != 1 and _is_out_of_reach(1)
    return False


def _sweep(parent: int) -> None:
    """End every process below this one; returns when none is left."""
    while _reap():
        if not _is_out_of_reach(parent):
            os._exit(70)  # never: a signal to all must not leave the domain
        try:
            os.kill(-1, _signal.SIGKILL)
        except ProcessLookupError:
            pass  # all have ended
        _signal.sigtimedwait({_signal.SIGCHLD}, 0.01)


def _reap() -> bool:
    """Collect what has ended; False when this process has no children any more."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def _is_ready(fd: int) -> bool:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _remove(folder: str) -> None:
    """Remove a folder with all in it, following no link."""
    try:
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in found:
            if is_folder:
                _remove(path)
            else:
                os.unlink(path)
        os.rmdir(folder)
    except OSError:
        pass  # what cannot be removed stays in the temporary folder of the system
