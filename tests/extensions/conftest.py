"""The rig of the agent's tests: a worker over a scripted model."""

from tests.agent.conftest import open_rig, workspace

__all__ = ["open_rig", "workspace"]
