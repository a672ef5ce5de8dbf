"""Safe access to the files of one folder, relative to a descriptor of that folder.

A path given by a model may lead out of the workspace by ``..``, by a symbolic link, or by a link
that is swapped between a check and its use. So nothing is checked by name and then opened by name.
On Linux the kernel resolves the whole path beneath the workspace descriptor (``openat2``);
elsewhere each component is opened without following links. Then the *opened* descriptor is
checked: it must be a regular file (or a folder), and its real place must be allowed.

Writing never follows a link at all. It goes to a temporary file in the same folder, which is
flushed to disk and renamed over the old one, so a reader sees the old or the new content.
"""

import ctypes
import errno
import hashlib
import os
import platform
import posixpath
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tools.errors import PathRefused, ToolError
from tools.protected import is_hidden, protected_part
from tools.text import one_line

_SYS_OPENAT2 = 437  # the same number on x86-64 and arm64
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must return, so that it can be refused.
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20


class _OpenHow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


class Workspace:
    """One folder, and the only way the file tools reach into it.

    Args:
        root: an existing folder. Links in its own path are resolved once, here.
        use_openat2: False forces the portable walk, which refuses every link.
    """

    def __init__(self, root: Path, use_openat2: bool = True) -> None:
        try:
            self.root = root.resolve(strict=True)
            self._fd = os.open(self.root, _FOLDER_FLAGS)
        except OSError as error:
            raise ToolError(
                f"cannot open the workspace {root}: {error.strerror}", "Give an existing folder."
            ) from error
        self._has_openat2 = use_openat2 and _openat2_works(self._fd)

    def close(self) -> None:
        """Close the workspace descriptor; the object cannot be used afterwards."""
        os.close(self._fd)

    def relative(self, path: str) -> PurePosixPath:
        """Return the path relative to the workspace; ``.`` is the workspace itself.

        Raises:
            PathRefused: the path is empty, malformed, or names a place outside.
        """
        shown = one_line(path)
        if not path or "\0" in path:
            raise PathRefused("the path is empty or malformed", "Give a path in the workspace.")
        if path.startswith("/"):
            try:
                inside = os.path.relpath(_resolve_folder(path), self.root)
            except OSError:
                inside = ".."
        else:
            inside = posixpath.normpath(path)
        relative = PurePosixPath(inside)
        if relative.is_absolute() or ".." in relative.parts:
            raise PathRefused(
                f"{shown} is outside the workspace", "Use a path relative to the workspace."
            )
        return relative

    @contextmanager
    def open_file(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a regular file for reading; yields its descriptor and status.

        Raises:
            PathRefused: outside, hidden, or no regular file.
            ToolError: missing, or not permitted.
        """
        relative = self.relative(path)
        self._refuse_hidden(relative)
        fd = self._open(relative, _FILE_FLAGS)
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{relative} is a folder", "Use list to see what is in it.")
            if not stat.S_ISREG(status.st_mode):
                raise PathRefused(
                    f"{relative} is not a regular file but {_kind(status.st_mode)}",
                    "Choose a regular file.",
                )
            self._refuse_hidden(self._real(fd, relative))
            yield fd, status
        finally:
            os.close(fd)

    @contextmanager
    def open_folder(self, path: str) -> Iterator[tuple[int, PurePosixPath]]:
        """Open a folder; yields its descriptor and its path relative to the workspace."""
        relative = self.relative(path)
        fd = self._open(relative, _FOLDER_FLAGS)
        try:
            yield fd, relative
        finally:
            os.close(fd)

    def is_folder(self, path: str) -> bool:
        """True when the path is an existing folder inside the workspace."""
        fd = self._open(self.relative(path), _FILE_FLAGS)
        try:
            return stat.S_ISDIR(os.fstat(fd).st_mode)
        finally:
            os.close(fd)

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """Return the whole content of a file of at most ``max_bytes`` bytes."""
        with self.open_file(path) as (fd, status):
            if status.st_size > max_bytes:
                raise ToolError(
                    f"{self.relative(path)} has {status.st_size} bytes, more than the "
                    f"{max_bytes} this tool handles",
                    "Use bash for a file of this size.",
                )
            return b"".join(chunks(fd))

    def digest(self, path: str) -> str | None:
        """Return the SHA-256 of a file's content, None when it does not exist."""
        try:
            with self.open_file(path) as (fd, _):
                hasher = hashlib.sha256()
                for chunk in chunks(fd):
                    hasher.update(chunk)
                return hasher.hexdigest()
        except FileMissing:
            return None

    def check_writable(self, path: str) -> PurePosixPath:
        """Return the relative path when rules allow a file to be written there.

        Raises:
            PathRefused: outside, protected, hidden, or reached through a link.
        """
        relative = self.relative(path)
        if relative == PurePosixPath("."):
            raise PathRefused("the path is the workspace itself", "Give the path of a file.")
        protected = protected_part(relative)
        if protected:
            raise PathRefused(
                f"{relative} is protected: {protected} is read-only for tools",
                "Ask the user to change it.",
            )
        self._refuse_hidden(relative)
        with self._parent(relative, create=False) as parent:
            if parent is not None:
                self._check_target(parent, relative)
        return relative

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file in one step; missing parent folders are created.

        An existing file keeps its mode, and its owner where we may set it. A file with several
        hard links is replaced, not changed: the other names keep the old content.
        """
        relative = self.check_writable(path)
        with self._parent(relative, create=True) as parent:
            assert parent is not None
            old = self._check_target(parent, relative)
            temporary = f".{relative.name[:100]}.{secrets.token_hex(6)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                fd = os.open(temporary, flags, 0o666, dir_fd=parent)
            except OSError as error:
                raise _os_failure(error, relative) from error
            try:
                try:
                    _write_all(fd, data)
                    if old is not None:
                        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                            _keep_owner(fd, old)
                        os.fchmod(fd, stat.S_IMODE(old.st_mode))
                    os.fsync(fd)
                finally:
                    os.close(fd)
                os.rename(temporary, relative.name, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError as error:
                os.unlink(temporary, dir_fd=parent)
                raise _os_failure(error, relative) from error
            os.fsync(parent)

    # --- opening ------------------------------------------------------------------------------

    def _open(self, relative: PurePosixPath, flags: int) -> int:
        try:
            if self._has_openat2:
                return _openat2(self._fd, str(relative), flags)
            return self._walk(relative, flags)
        except FileNotFoundError as error:
            raise FileMissing(
                f"{relative} does not exist", self._nearest_names(relative)
            ) from error
        except OSError as error:
            raise _os_failure(error, relative) from error

    def _walk(self, relative: PurePosixPath, flags: int) -> int:
        fd = os.dup(self._fd)
        for index, part in enumerate(relative.parts):
            is_last = index == len(relative.parts) - 1
            step_flags = flags if is_last else _FOLDER_FLAGS
            try:
                step = os.open(part, step_flags | os.O_NOFOLLOW, dir_fd=fd)
            except NotADirectoryError as error:
                raise _link_or_file(part, fd, error) from error
            finally:
                os.close(fd)
            fd = step
        return fd

    def _real(self, fd: int, relative: PurePosixPath) -> PurePosixPath:
        """The place an opened file really has: a link inside the workspace may name another."""
        if not self._has_openat2:
            return relative  # the walk followed no link
        try:
            return PurePosixPath(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), self.root))
        except OSError:
            return relative

    @contextmanager
    def _parent(self, relative: PurePosixPath, create: bool) -> Iterator[int | None]:
        """Open the folder a file is to lie in, following no link; None when it is missing."""
        fd = os.dup(self._fd)
        try:
            for part in relative.parts[:-1]:
                try:
                    step = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=fd)
                except FileNotFoundError:
                    if not create:
                        yield None
                        return
                    os.mkdir(part, dir_fd=fd)
                    step = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = step
        except OSError as error:
            os.close(fd)
            fd = -1
            raise _os_failure(error, relative, writing=True) from error
        else:
            yield fd
        finally:
            if fd >= 0:
                os.close(fd)

    def _check_target(self, parent: int, relative: PurePosixPath) -> os.stat_result | None:
        try:
            status = os.stat(relative.name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _os_failure(error, relative, writing=True) from error
        if stat.S_ISLNK(status.st_mode):
            target = one_line(os.readlink(relative.name, dir_fd=parent))
            raise PathRefused(
                f"{relative} is a symbolic link to {target}", "Give the path of the file itself."
            )
        if stat.S_ISDIR(status.st_mode):
            raise PathRefused(f"{relative} is a folder", "Give the path of a file.")
        if not stat.S_ISREG(status.st_mode):
            raise PathRefused(
                f"{relative} is not a regular file but {_kind(status.st_mode)}",
                "Choose another path.",
            )
        return status

    def _refuse_hidden(self, relative: PurePosixPath) -> None:
        # Folders of such a name stay reachable: ``.env`` is also a common name of a virtual
        # environment. Only the last component names a file.
        if is_hidden(relative.name):
            raise PathRefused(
                f"{relative} is hidden from tools because it may hold secrets",
                "Work without it, or ask the user.",
            )

    def _nearest_names(self, relative: PurePosixPath) -> str:
        import difflib  # only failures pay for it

        folder = str(relative.parent)
        try:
            with self.open_folder(folder) as (fd, _):
                names = [name for name in os.listdir(fd) if not is_hidden(name)][:5000]
        except ToolError:
            return f"The folder {folder} does not exist either; use list to look around."
        near = difflib.get_close_matches(relative.name, names, n=3, cutoff=0.5)
        if near:
            prefix = "" if folder == "." else f"{folder}/"
            return "Near names: " + ", ".join(prefix + one_line(name) for name in near) + "."
        return "Use list to see which files exist."


class FileMissing(ToolError):
    """No file of that name; the hint names near ones."""


def chunks(fd: int, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the rest of an open file in pieces of at most ``chunk_bytes`` bytes."""
    while chunk := os.read(fd, chunk_bytes):
        yield chunk


def _openat2_works(root_fd: int) -> bool:
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    try:
        os.close(_openat2(root_fd, ".", _FOLDER_FLAGS))
    except OSError:  # an old kernel, or a container that forbids the call
        return False
    return True


def _openat2(root_fd: int, path: str, flags: int) -> int:
    how = _OpenHow(flags=flags, mode=0, resolve=_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(16):  # the kernel asks for a retry when something was renamed meanwhile
        fd = libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(root_fd),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EAGAIN:
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)


def _link_or_file(name: str, folder_fd: int, error: OSError) -> OSError:
    """Tell a link that was not followed from a file where a folder was expected."""
    if stat.S_ISLNK(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
        return OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return error


def _resolve_folder(path: str) -> str:
    """Resolve links in all but the last component: the workspace may itself lie below a link."""
    path = posixpath.normpath(path)
    head, tail = posixpath.split(path)
    return posixpath.join(os.path.realpath(head), tail)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _keep_owner(fd: int, old: os.stat_result) -> None:
    try:
        os.fchown(fd, old.st_uid, old.st_gid)
    except PermissionError:
        return  # the file then belongs to us, as any program's saved file would


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "something else"


def _os_failure(error: OSError, relative: PurePosixPath, writing: bool = False) -> ToolError:
    match error.errno:
        case errno.EXDEV:
            return PathRefused(
                f"{relative} leads out of the workspace by a link", "Use a path inside it."
            )
        case errno.ELOOP:
            return PathRefused(
                f"{relative} passes through a symbolic link", "Use the path without the link."
            )
        case errno.ENOTDIR if writing:
            return PathRefused(
                f"{relative} passes through a link or a file", "Use a path of real folders."
            )
        case errno.ENOTDIR:
            return ToolError(f"{relative} is not a folder", "Use read for files.")
        case errno.EACCES | errno.EPERM:
            return ToolError(f"{relative}: permission denied", "Choose another path.")
        case errno.ENXIO:
            return PathRefused(f"{relative} is not a regular file", "Choose a regular file.")
        case errno.ENAMETOOLONG:
            return ToolError("the path is too long", "Use a shorter name.")
        case errno.ENOSPC | errno.EDQUOT:
            return ToolError(f"{relative}: the disk is full", "Nothing was changed.")
    return ToolError(f"{relative}: {error.strerror}", "Check the path and try again.")
