"""One JSON object a line, with the keys of zap's production encoder, which the router's programs log with."""

from __future__ import annotations

import json
import logging


class JsonFormatter(logging.Formatter):
    """`level`, `ts` (seconds), `logger`, `msg`, and whatever was passed as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "level": record.levelname.lower(),
            "ts": record.created,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        entry.update(getattr(record, "fields", {}))
        return json.dumps(entry, default=str)


def set_up(*, json_lines: bool, level: int = logging.INFO) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s\t%(levelname)s\t%(name)s\t%(message)s")
    handler.setFormatter(JsonFormatter() if json_lines else text)
    logging.basicConfig(level=level, handlers=[handler])
    # Libraries log their own inner workings at the level of debugging; the real programs' verbosity does not.
    logging.getLogger("asyncio").setLevel(logging.INFO)
