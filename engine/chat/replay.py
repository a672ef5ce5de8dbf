"""The sampled bytes of every tool call, kept by the call's id.

A client sends a call back as JSON, and JSON that is rendered again is rarely what the model wrote:
other spaces, other order, other escapes. So the block of calls is remembered as it was sampled, and
a past reply whose calls are all known and stand in one block is rendered with exactly that block.
The ids can't be guessed, since whoever knows one selects bytes whose marks become control tokens.

``KTM`` is the form in which antirez/ds4 keeps the map behind a saved state; little-endian:
``"KTM"``, u8 version 1, u32 number of entries, then per entry u32 id bytes, u32 block bytes, the
id, the block.
"""

import dataclasses
import secrets
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from engine.chat.conversation import Conversation, Message

DEFAULT_MAX_IDS = 100_000
DEFAULT_MAX_BYTES = 512 << 20  # of all blocks together, and of one in a file
_MAGIC = b"KTM\x01"
_MAX_ID_BYTES = 256


def new_call_id(prefix: str = "call_") -> str:
    """Return an id that can't be guessed: the prefix and 32 hexadecimal digits."""
    return prefix + secrets.token_hex(16)


class CallReplay:
    """Blocks of calls by id; the one that was used least recently goes first.

    Used by one thread at a time.
    """

    def __init__(self, max_ids: int = DEFAULT_MAX_IDS, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Make an empty map.

        Args:
            max_ids: Most ids to keep.
            max_bytes: Most bytes of blocks to keep; a block counts once, however many ids it has.
        """
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[str, bytes] = OrderedDict()  # by id; last = used last
        self._n_users: dict[bytes, int] = {}  # ids of a block
        self.n_bytes = 0  # of all blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def remember(self, call_ids: Iterable[str], block: bytes) -> None:
        """Keep a block under the ids of its calls. An id that is known gets the new block.

        Ids and blocks that the file form can't hold are not kept.
        """
        if not 0 < len(block) <= self._max_bytes:
            return
        for call_id in call_ids:
            if not 0 < len(call_id.encode()) <= _MAX_ID_BYTES:
                continue
            self._forget(call_id)
            self._blocks[call_id] = block
            if block not in self._n_users:
                self._n_users[block] = 0
                self.n_bytes += len(block)
            self._n_users[block] += 1
        while self._blocks and (
            len(self._blocks) > self._max_ids or self.n_bytes > self._max_bytes
        ):
            self._forget(next(iter(self._blocks)))

    def block(self, call_ids: Sequence[str]) -> bytes | None:
        """Return the block of a past reply with these calls; None unless all are known and were
        in the same block."""
        blocks = {self._blocks.get(call_id) for call_id in call_ids}
        if len(blocks) != 1 or None in blocks:
            return None
        for call_id in call_ids:
            self._blocks.move_to_end(call_id)
        return blocks.pop()

    def restore(self, conversation: Conversation) -> Conversation:
        """Return a conversation whose past calls stand as they were sampled, where that is known.

        What a client says about a call that is known is not looked at, its arguments included.
        """
        return dataclasses.replace(
            conversation, messages=tuple(self._restored(m) for m in conversation.messages)
        )

    def _restored(self, message: Message) -> Message:
        block = self.block([call.call_id for call in message.calls]) if message.calls else None
        if block is None:
            return message
        try:
            return dataclasses.replace(message, sampled_block=block.decode())
        except UnicodeDecodeError:  # from a damaged file; text can't hold it
            return message

    def entries(self, text: bytes) -> list[tuple[str, bytes]]:
        """Return what belongs to a saved conversation: for each block whose bytes are in its
        text, in their order, the ids; of one block those first that were used last."""
        found = sorted((text.find(block), block) for block in self._n_users if block in text)
        rank = {block: n for n, (_, block) in enumerate(found)}
        ids = [(call_id, block) for call_id, block in self._blocks.items() if block in rank]
        return sorted(reversed(ids), key=lambda entry: rank[entry[1]])

    def load(self, data: bytes, only: Collection[str] | None = None) -> int:
        """Add the entries of a KTM section; what is known already stays.

        Args:
            data: The section, or the rest of a file from where it should begin.
            only: Ids to take; None takes all.

        Returns:
            The number of entries taken. Data of another kind has none; a bad entry ends the
            reading, and what was read before it stays.
        """
        taken = 0
        for call_id, block in read_ktm(data, self._max_ids):
            if call_id not in self._blocks and (only is None or call_id in only):
                self.remember([call_id], block)
                taken += 1
        return taken

    def _forget(self, call_id: str) -> None:
        block = self._blocks.pop(call_id, None)
        if block is None:
            return
        self._n_users[block] -= 1
        if not self._n_users[block]:
            del self._n_users[block]
            self.n_bytes -= len(block)


def write_ktm(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a KTM section. Without entries there is none: ``b""``."""
    if not entries:
        return b""
    parts = [_MAGIC, struct.pack("<I", len(entries))]
    for call_id, block in entries:
        raw = call_id.encode()
        parts += [struct.pack("<II", len(raw), len(block)), raw, block]
    return b"".join(parts)


def read_ktm(data: bytes, max_ids: int = DEFAULT_MAX_IDS) -> list[tuple[str, bytes]]:
    """Return the entries of a KTM section, up to the first bad one; nothing in it is trusted."""
    if len(data) < 8 or data[:4] != _MAGIC:
        return []
    (count,) = struct.unpack_from("<I", data, 4)
    if count > 4 * max_ids:
        return []
    entries, at = [], 8
    for _ in range(count):
        if at + 8 > len(data):
            break
        n_id, n_block = struct.unpack_from("<II", data, at)
        end = at + 8 + n_id + n_block
        is_sane = 0 < n_id <= _MAX_ID_BYTES and 0 < n_block <= DEFAULT_MAX_BYTES
        if not is_sane or end > len(data):
            break
        raw = data[at + 8 : at + 8 + n_id]
        try:
            entries.append((raw.decode(), data[at + 8 + n_id : end]))
        except UnicodeDecodeError:
            break
        at = end
    return entries
