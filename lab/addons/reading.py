"""How addons read the cluster: objects at paths of the API, or the reason why there is none."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.api import Api, ApiError, Unreachable

Object = Mapping[str, Any]
Get = Callable[[str], Object]  # from a path of the API to what is there; raises NoAnswerError


class NoAnswerError(Exception):
    """There is nothing at a path, or no server; the message says which."""


def reader(kubeconfig: Path, timeout_seconds: float = 10.0) -> Get:
    """Reads the cluster of a kubeconfig."""
    api = Api.from_kubeconfig(kubeconfig, timeout_seconds)

    def get(path: str) -> Object:
        try:
            return api.get(path)
        except ApiError as error:
            raise NoAnswerError(str(error)) from error
        except Unreachable as error:
            raise NoAnswerError(f"{api.server} does not answer: {error}") from error

    return get
