"""Who may read metrics: the owner of a bearer token, if a TokenReview and a SubjectAccessReview say so."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from lab.stand_ins.in_cluster import Requests

_CACHE_SECONDS = 5.0  # a withdrawn role or token is refused after at most this long
_CACHE_ENTRIES = 256


@dataclass(frozen=True)
class Verdict:
    """Whether a token may read metrics: 200, 401 or 403, and a line that says why."""

    status: HTTPStatus
    reason: str


def judge(api: Requests, token: str, access: Mapping[str, Mapping[str, str]]) -> Verdict:
    """Ask the API server who `token` is, then whether they have `access`.

    Args:
        api: Server to ask.
        token: Bearer token.
        access: `resourceAttributes` or `nonResourceAttributes` of a SubjectAccessReview.

    Raises:
        ApiError, OSError: the API server did not say.
    """
    review = api.request(
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
    )["status"]
    if not review.get("authenticated"):
        return Verdict(HTTPStatus.UNAUTHORIZED, review.get("error") or "the token is not valid")
    user = review["user"]
    spec = {"user": user["username"], **access}
    spec |= {key: user[key] for key in ("groups", "uid", "extra") if key in user}
    answer = api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
    )["status"]
    if answer.get("allowed"):
        return Verdict(HTTPStatus.OK, user["username"])
    (what,) = access.values()
    return Verdict(HTTPStatus.FORBIDDEN, f"{user['username']} may not {' '.join(what.values())}")


class RecentVerdicts:
    """Verdicts of the last few seconds: a scaler's burst of queries is one review. Keeps digests, not tokens."""

    def __init__(self, judge: Callable[[str], Verdict], clock: Callable[[], float] = time.monotonic) -> None:
        self._judge = judge
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Verdict]] = {}

    def of(self, authorization: str | None) -> Verdict:
        """The verdict on an Authorization header, at most `_CACHE_SECONDS` old. A failing review is not kept."""
        scheme, _, token = (authorization or "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Verdict(HTTPStatus.UNAUTHORIZED, "a bearer token is required")
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            until, verdict = self._known.get(digest, (0.0, None))
        if verdict is not None and self._clock() < until:
            return verdict
        verdict = self._judge(token)
        with self._lock:
            if len(self._known) >= _CACHE_ENTRIES:
                self._known.clear()
            self._known[digest] = (self._clock() + _CACHE_SECONDS, verdict)
        return verdict
