"""Fetching one large file over HTTP, resumably.

What has arrived is kept in a partial file; the next attempt asks the server for the rest. A server
that cannot continue (status 200 instead of 206, or another size) makes it start again. The caller
checks the hash: this module only promises the announced number of bytes.
"""

import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ds4agent.errors import DownloadError
from ds4agent.verify import Progress

CONNECT_TIMEOUT_S = 5.0  # an offline machine should say so at once
READ_TIMEOUT_S = 60.0  # a stalled transfer is given up and resumed after this
_CHUNK_BYTES = 1 << 20
_MAX_FAILURES = 3  # in a row, without a single new byte
_RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_RESUME_HINT = "Run the command again: what has arrived is kept."


class _Interrupted(Exception):
    """The transfer broke in a way that another attempt may mend."""


class _HTTPConnection(http.client.HTTPConnection):
    """One connection with a short timeout to connect and a long one to read."""

    def connect(self) -> None:
        self.timeout = CONNECT_TIMEOUT_S
        super().connect()
        self.sock.settimeout(READ_TIMEOUT_S)


class _HTTPSConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        self.timeout = CONNECT_TIMEOUT_S
        super().connect()
        self.sock.settimeout(READ_TIMEOUT_S)


class _HTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_HTTPConnection, request)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_HTTPSConnection, request)


def fetch(
    url: str,
    partial: Path,
    n_bytes: int | None,
    progress: Progress,
    *,
    retry_wait_s: float = 1.0,
) -> None:
    """Make ``partial`` hold the whole file at ``url``.

    Args:
        url: where the file is; redirects are followed, proxies of the environment are used.
        partial: may hold the beginning already.
        n_bytes: the size that the file must have, or None to believe the server.
        progress: called with bytes done and bytes in all.
        retry_wait_s: pause before another attempt.

    Raises:
        DownloadError: the server cannot be reached, refuses, offers another size, or the transfer
            broke too often. ``partial`` keeps what arrived.
    """
    opener = urllib.request.build_opener(_HTTPHandler, _HTTPSHandler)
    failures = 0
    while True:
        before = _size(partial)
        if n_bytes is not None and before > n_bytes:
            partial.unlink()  # not the beginning of this file
            before = 0
        if n_bytes is not None and before == n_bytes:
            return
        try:
            total = _fetch_rest(opener, url, partial, n_bytes, progress)
            if _size(partial) == total:
                return
            reason = "the connection was closed early"
        except _Interrupted as error:
            reason = str(error)
        failures = 0 if _size(partial) > before else failures + 1
        if failures >= _MAX_FAILURES:
            raise DownloadError(
                f"download of {url} broke off at {_size(partial):,} bytes: {reason}", _RESUME_HINT
            )
        time.sleep(retry_wait_s)


def _fetch_rest(
    opener: urllib.request.OpenerDirector,
    url: str,
    partial: Path,
    n_bytes: int | None,
    progress: Progress,
) -> int:
    """Run one request and append what it brings. Returns the size of the whole file."""
    have = _size(partial)
    request = urllib.request.Request(url, headers={"User-Agent": "ds4-agent"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with opener.open(request, timeout=CONNECT_TIMEOUT_S) as response:
            start, total = _extent(response, have)
            if n_bytes is not None and total != n_bytes:
                raise DownloadError(
                    f"{url} has {total:,} bytes, expected {n_bytes:,}",
                    "The file there is another one; report it.",
                )
            _append(response, partial, start, total, progress)
            return total
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            partial.unlink()  # the partial file is not the beginning of what is there now
            raise _Interrupted("the file there has changed") from error
        if error.code in _RETRY_STATUS:
            raise _Interrupted(f"the server answered {error.code}") from error
        raise DownloadError(
            f"{url}: the server answered {error.code} {error.reason}",
            "Check the name, and whether the file needs an account.",
        ) from error
    except urllib.error.URLError as error:
        raise DownloadError(
            f"cannot reach {request.host}: {error.reason}", "Check the network connection."
        ) from error
    except (http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _Interrupted(str(error) or type(error).__name__) from error


def _extent(response: Any, have: int) -> tuple[int, int]:
    """Return where the body starts in the file, and the size of the whole file."""
    if response.status == 206:
        content_range = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", content_range)
        if match is None or int(match[1]) != have:
            raise DownloadError(
                f"the server sent the range {content_range!r}, expected one from byte {have}",
                "Delete the partial file and try again.",
            )
        return have, int(match[2])
    length = response.headers.get("Content-Length", "")
    if not length.isdigit():
        raise DownloadError(
            f"{response.url} does not say its size", "This is no file server; check the address."
        )
    return 0, int(length)


def _append(response: Any, partial: Path, start: int, total: int, progress: Progress) -> None:
    """Write the body at ``start``, cutting off whatever was there, down to the disk."""
    with partial.open("r+b" if partial.exists() else "wb") as file:
        file.truncate(start)
        file.seek(start)
        done = start
        try:
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
                if done > total:
                    raise DownloadError(
                        f"{response.url} sent more than its {total:,} bytes", "Try again later."
                    )
        except http.client.IncompleteRead as error:
            file.write(error.partial)
        finally:
            file.flush()
            os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
