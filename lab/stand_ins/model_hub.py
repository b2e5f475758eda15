"""Stand-in for the Hugging Face hub: what `hf download MODEL --revision REVISION` asks for, answered from memory.

`python3 -m lab.stand_ins.model_hub [--port 8000]`; clients find it by `HF_ENDPOINT`. It has the models of `MODELS`,
each at the revisions that `revisions_of` lists (the last is `main`). `lab/gated` wants the bearer token that
LAB_HF_TOKEN names, `hf_lab` by default. `GET /requests` counts what was downloaded, so that a test sees that a second
run fetched nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import struct
from collections import Counter
from functools import cache
from http import HTTPStatus

from aiohttp import web

from lab.stand_ins.serving import serving, stop_signal

MODELS = ("lab/tiny", "lab/tiny-pd", "lab/gated")
GATED = frozenset({"lab/gated"})
DEFAULT_TOKEN = "hf_lab"  # noqa: S105 - opens a stand-in only
REVISIONS_PER_MODEL = 2
WEIGHT_COUNT = 64 * 1024  # 4-byte numbers: 256 KiB, enough to be downloaded in parts
# As Qwen3-32B, the model of the published runs, so that `--max-model-len` may be as long as there.
MAX_POSITION_EMBEDDINGS = 40_960


def revisions_of(model: str) -> tuple[str, ...]:
    """The commits of `model`, oldest first: 40 hex digits that only depend on its name."""
    return tuple(hashlib.sha256(f"{model}@{n}".encode()).hexdigest()[:40] for n in range(1, REVISIONS_PER_MODEL + 1))


@cache
def files_of(model: str, commit: str) -> dict[str, bytes]:
    """Every file of a model at a commit; the same names and arguments give the same bytes, on every machine."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "max_position_embeddings": MAX_POSITION_EMBEDDINGS,
        "torch_dtype": "bfloat16",
        "vocab_size": 256,
    }
    tokenizer = {"version": "1.0", "model": {"type": "BPE", "vocab": {chr(97 + n): n for n in range(26)}, "merges": []}}
    return {
        "config.json": _json(config),
        "model.safetensors": _safetensors(f"{model}@{commit}"),
        "tokenizer.json": _json(tokenizer),
        "tokenizer_config.json": _json({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40_960}),
    }


def etag_of(content: bytes) -> str:
    """The tag under which a client caches a file."""
    return f'"{hashlib.sha256(content).hexdigest()}"'


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"


def _safetensors(seed: str) -> bytes:
    """One tensor of random numbers in the safetensors layout: header length (u64), header, data."""
    data = random.Random(seed).randbytes(4 * WEIGHT_COUNT)  # noqa: S311 - filler
    header = json.dumps({"w": {"dtype": "F32", "shape": [WEIGHT_COUNT], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


class Hub:
    """The paths of the hub's HTTP API that the `hf` client uses."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._counts: Counter[str] = Counter()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/requests", self._requests)
        app.router.add_get("/api/models/{model:[^/]+/[^/]+}", self._info)
        app.router.add_get("/api/models/{model:[^/]+/[^/]+}/revision/{revision}", self._info)
        app.router.add_get("/api/models/{model:[^/]+/[^/]+}/tree/{revision}", self._tree)
        app.router.add_get("/{model:[^/]+/[^/]+}/resolve/{revision}/{file:.+}", self._file)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _requests(self, _request: web.Request) -> web.Response:
        downloads = {key: count for key, count in self._counts.items() if key.startswith("GET ")}
        return web.json_response({"downloads": sum(downloads.values()), "requests": dict(sorted(self._counts.items()))})

    async def _info(self, request: web.Request) -> web.Response:
        model, commit = self._resolve(request)
        files = [{"rfilename": name} for name in files_of(model, commit)]
        gated = "manual" if model in GATED else False
        body = {"id": model, "modelId": model, "sha": commit, "private": False, "gated": gated, "siblings": files}
        return web.json_response(body | {"tags": [], "downloads": 0, "likes": 0})

    async def _tree(self, request: web.Request) -> web.Response:
        model, commit = self._resolve(request)
        return web.json_response(
            [
                {"type": "file", "path": name, "size": len(content), "oid": etag_of(content).strip('"')[:40]}
                for name, content in files_of(model, commit).items()
            ]
        )

    async def _file(self, request: web.Request) -> web.Response:
        model, commit = self._resolve(request)
        name = request.match_info["file"]
        content = files_of(model, commit).get(name)
        if content is None:
            raise _refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", f"{name} is not in {model}")
        self._counts[f"{request.method} {model}/{name}"] += 1
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Disposition": f'inline; filename="{name}"',
            "ETag": etag_of(content),
            "X-Linked-Size": str(len(content)),
            "X-Repo-Commit": commit,
        }
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            wanted = request.http_range
        except ValueError:
            wanted = slice(len(content), None)
        start, stop, _ = wanted.indices(len(content))
        if "Range" not in request.headers:
            return web.Response(body=content, headers=headers, content_type="application/octet-stream")
        if start >= stop:
            headers["Content-Range"] = f"bytes */{len(content)}"
            return web.Response(status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=headers)
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return web.Response(
            status=HTTPStatus.PARTIAL_CONTENT,
            body=content[start:stop],
            headers=headers,
            content_type="application/octet-stream",
        )

    def _resolve(self, request: web.Request) -> tuple[str, str]:
        """Model and commit that a path names, if the client may see them."""
        model = request.match_info["model"]
        if model not in MODELS:
            raise _refusal(HTTPStatus.NOT_FOUND, "RepoNotFound", "Repository not found")
        if model in GATED and request.headers.get("Authorization") != f"Bearer {self._token}":
            raise _refusal(HTTPStatus.UNAUTHORIZED, "GatedRepo", f"Access to model {model} is restricted")
        commits = revisions_of(model)
        revision = request.match_info.get("revision", "main")
        commit = commits[-1] if revision == "main" else revision
        if commit not in commits:
            raise _refusal(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
        return model, commit


def _refusal(status: HTTPStatus, code: str, message: str) -> web.HTTPException:
    """An error as the client tells them apart: by `X-Error-Code`, not by the body."""
    kind = web.HTTPUnauthorized if status is HTTPStatus.UNAUTHORIZED else web.HTTPNotFound
    return kind(
        text=json.dumps({"error": message}),
        headers={"X-Error-Code": code, "X-Error-Message": message},
        content_type="application/json",
    )


async def _serve(port: int) -> None:
    stop = stop_signal()
    async with serving(Hub(os.environ.get("LAB_HF_TOKEN", DEFAULT_TOKEN)).application(), port):
        await stop.wait()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="model-hub", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8000)
    asyncio.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
