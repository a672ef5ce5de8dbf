"""Putting states back into a workspace, without following any link on the way."""

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from tools.errors import ToolError
from tools.undo.state import State, read_state

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def state_at(root_fd: int, path: str, keep: Callable[[bytes], str] | None = None) -> State | None:
    """Return what is at a path now, None for nothing; ``keep`` as in ``read_state``."""
    relative = PurePosixPath(path)
    try:
        fd = _open_folder(root_fd, relative.parent)
    except OSError:
        return None
    try:
        return read_state(fd, relative.name, keep)
    finally:
        os.close(fd)


def restore(
    root_fd: int, wanted: dict[str, State | None], content: Callable[[str], bytes | None]
) -> None:
    """Make the paths what they are to be.

    What is to be gone goes first, folders after what is in them and only when empty. Each file is
    replaced in one step; a crash in between leaves some paths restored and the others not.

    Args:
        root_fd: the workspace.
        wanted: path relative to it -> state, None for nothing.
        content: returns the bytes of a hash.

    Raises:
        ToolError: a path could not be changed.
    """
    for path in sorted(wanted, key=_depth, reverse=True):
        if wanted[path] is None:
            _apply(root_fd, PurePosixPath(path), None, content)
    for path in sorted(wanted, key=_depth):
        state = wanted[path]
        if state is not None:
            _apply(root_fd, PurePosixPath(path), state, content)


def _apply(
    root_fd: int,
    path: PurePosixPath,
    state: State | None,
    content: Callable[[str], bytes | None],
) -> None:
    try:
        with _folder(root_fd, path.parent) as fd:
            now = read_state(fd, path.name)
            if now == state and (now is None or now.is_known):
                return
            if now is not None and now.kind == "folder":
                if state is not None and state.kind == "folder":
                    return
                os.rmdir(path.name, dir_fd=fd)
            elif now is not None and (state is None or state.kind == "folder"):
                os.unlink(path.name, dir_fd=fd)
            if state is None:
                return
            if state.kind == "folder":
                os.mkdir(path.name, dir_fd=fd)
                _give_to_owner(fd, path.name)
            elif state.kind == "link":
                temporary = _temporary()
                os.symlink(state.content, temporary, dir_fd=fd)
                os.rename(temporary, path.name, src_dir_fd=fd, dst_dir_fd=fd)
            else:
                _write(fd, path.name, state, content)
    except FileNotFoundError:
        if state is not None:
            raise ToolError(f"the folder of {path} is not there", "Make it first.") from None
    except OSError as error:
        if state is None and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return  # a folder that holds something else by now stays
        raise ToolError(
            f"{path} cannot be restored: {error.strerror}",
            "Mend that and do it again: it goes on where it stopped.",
        ) from error


def _write(fd: int, name: str, state: State, content: Callable[[str], bytes | None]) -> None:
    data = content(state.content)
    if data is None:
        raise ToolError(f"the earlier content of {name} is not kept any more", "Nothing to do.")
    temporary = _temporary()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(temporary, flags, 0o600, dir_fd=fd)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(opened)
            _give_to_owner(fd, temporary)
            os.fchmod(opened, state.mode)
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:  # on a full disk, half a file would stay in the project
        os.unlink(temporary, dir_fd=fd)
        raise


def _give_to_owner(folder_fd: int, name: str) -> None:
    """As root, what is made belongs to the owner of the folder it lies in."""
    if os.geteuid() == 0:
        status = os.fstat(folder_fd)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=folder_fd, follow_symlinks=False)


def _temporary() -> str:
    return f".undo-{secrets.token_hex(6)}.tmp"


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


@contextmanager
def _folder(root_fd: int, folder: PurePosixPath) -> Iterator[int]:
    fd = _open_folder(root_fd, folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _open_folder(root_fd: int, folder: PurePosixPath) -> int:
    fd = os.dup(root_fd)
    for part in folder.parts:
        try:
            step = os.open(part, _FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd
