"""How many KV-cache blocks are taken, and by whom."""

from __future__ import annotations


class KvPool:
    """A pool of KV-cache blocks of `block_size` tokens each; it never hands out more than it has."""

    def __init__(self, tokens: int, block_size: int) -> None:
        if tokens < block_size or block_size < 1:
            raise ValueError(f"a pool of {tokens} tokens holds no block of {block_size} tokens")
        self.block_size = block_size
        self.total_blocks = tokens // block_size
        self._taken: dict[str, int] = {}
        self.used_blocks = 0

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def reserve(self, owner: str, tokens: int) -> bool:
        """Grow what `owner` has to room for `tokens` tokens; False (and nothing changed) if the pool cannot."""
        wanted = self.blocks_for(tokens)
        more = wanted - self._taken.get(owner, 0)
        if more > self.total_blocks - self.used_blocks:
            return False
        if more > 0:
            self._taken[owner] = wanted
            self.used_blocks += more
        return True

    def release(self, owner: str) -> None:
        """Give back all that `owner` has; nothing to give back is fine."""
        self.used_blocks -= self._taken.pop(owner, 0)

    def blocks_of(self, owner: str) -> int:
        """Blocks that `owner` has taken."""
        return self._taken.get(owner, 0)

    @property
    def usage(self) -> float:
        """Share of the pool that is taken, 0..1."""
        return self.used_blocks / self.total_blocks
