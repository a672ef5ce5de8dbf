"""What a server is started with."""

from dataclasses import dataclass
from pathlib import Path

from ds4agent.server.checkpoint_policy import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything that does not change while it runs.

    Attributes:
        host: Address to listen at.
        port: 0 takes any free one.
        api_key: What clients have to name; "" asks for none.
        cors: Let pages of any web site ask.
        model_name: Id of the model in ``/v1/models``; "" takes the one of its file.
        kv_folder: Folder of the checkpoints; None keeps none.
        kv_space_mb: Most MiB of all checkpoints.
        policy: When to save what.
        live_sessions: Conversations in memory at the same time.
        max_queue: Requests that may wait.
        max_connections: Connections at the same time.
        keep_alive_s: Longest silence of a stream before a comment is sent.
        stall_s: How long a reader may take nothing before it is dropped.
        tool_memory_max_ids: Sampled calls to remember.
        trace: File that gets every prompt and reply; None: none does.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str = ""
    cors: bool = False
    model_name: str = ""
    kv_folder: Path | None = None
    kv_space_mb: int = 4096
    policy: CheckpointPolicy = CheckpointPolicy()
    live_sessions: int = 2
    max_queue: int = 256
    max_connections: int = 1024
    keep_alive_s: float = 5.0
    stall_s: float = 10.0
    tool_memory_max_ids: int = 100_000
    trace: Path | None = None
