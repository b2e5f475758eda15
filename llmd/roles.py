"""Which part of an inference a model server does."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A model server's part: prefill, decode, or both in one pod (co-located)."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"

    @property
    def label(self) -> str:
        """Value of the pod label `llm-d.ai/role`, as the router's prefill and decode filters read it."""
        return "prefill-decode" if self is Role.BOTH else self.value

    @property
    def suffix(self) -> str:
        """What follows the model key in the role's Deployment name; also its key in a topology's configuration."""
        return "server" if self is Role.BOTH else self.value
