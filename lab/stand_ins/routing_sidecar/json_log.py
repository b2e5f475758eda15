"""One JSON object a line, with the keys of the real sidecar's logger."""

from __future__ import annotations

import json
import logging


class JsonFormatter(logging.Formatter):
    """`level`, `ts` (seconds), `logger`, `msg` and whatever was passed as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "level": record.levelname.lower(),
            "ts": record.created,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        return json.dumps(entry, default=str)


def set_up(*, debug: bool) -> None:
    """Log to stderr; `debug` as `--zap-log-level=debug` or any verbosity number."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
    # Libraries log their own inner workings at this level; the real sidecar's verbosity does not.
    logging.getLogger("asyncio").setLevel(logging.INFO)
