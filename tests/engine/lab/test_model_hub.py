"""The model hub stand-in answers what a Hugging Face client asks."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lab.stand_ins.model_hub import etag_of, files_of, revisions_of
from tests.engine.lab.stand_in_processes import free_port, running

REVISION = revisions_of("lab/tiny")[0]


@pytest.fixture(scope="module")
def hub():
    port = free_port()
    with running("lab.stand_ins.model_hub", f"--port={port}", port=port) as started:
        yield started


def counts(hub) -> dict:
    return json.loads(hub.get("/requests")[1])


def test_a_revision_lists_its_commit_and_files(hub):
    status, body = hub.get(f"/api/models/lab/tiny/revision/{REVISION}")
    info = json.loads(body)
    assert status == 200
    assert (info["id"], info["sha"]) == ("lab/tiny", REVISION)
    assert {entry["rfilename"] for entry in info["siblings"]} == set(files_of("lab/tiny", REVISION))


def test_main_is_the_newest_revision(hub):
    infos = [json.loads(hub.get(path)[1]) for path in ("/api/models/lab/tiny", "/api/models/lab/tiny/revision/main")]
    assert [info["sha"] for info in infos] == [revisions_of("lab/tiny")[-1]] * 2


def test_a_tree_tells_sizes(hub):
    tree = json.loads(hub.get(f"/api/models/lab/tiny/tree/{REVISION}")[1])
    sizes = {entry["path"]: entry["size"] for entry in tree}
    assert sizes == {name: len(content) for name, content in files_of("lab/tiny", REVISION).items()}


def test_a_head_tells_commit_tag_and_size_without_a_download(hub):
    before = counts(hub)["downloads"]
    with hub.open("HEAD", f"/lab/tiny/resolve/{REVISION}/config.json") as response:
        content = files_of("lab/tiny", REVISION)["config.json"]
        assert response.status == 200
        assert response.headers["X-Repo-Commit"] == REVISION
        assert response.headers["ETag"] == etag_of(content)
        assert response.headers["Content-Length"] == str(len(content))
    assert counts(hub)["downloads"] == before


def test_a_file_comes_whole_and_is_counted(hub):
    before = counts(hub)["downloads"]
    status, content = hub.get("/lab/tiny-pd/resolve/main/model.safetensors")
    assert status == 200
    assert content == files_of("lab/tiny-pd", revisions_of("lab/tiny-pd")[-1])["model.safetensors"]
    assert counts(hub)["downloads"] == before + 1
    assert counts(hub)["requests"]["GET lab/tiny-pd/model.safetensors"] >= 1


@pytest.mark.parametrize(("asked", "part"), [("bytes=100-", slice(100, None)), ("bytes=5-9", slice(5, 10))])
def test_a_range_continues_a_download(hub, asked, part):
    content = files_of("lab/tiny", REVISION)["model.safetensors"]
    path = f"/lab/tiny/resolve/{REVISION}/model.safetensors"
    with hub.open("GET", path, headers={"Range": asked}) as response:
        assert response.status == 206
        assert response.headers["Content-Range"].endswith(f"/{len(content)}")
        assert response.read() == content[part]


def test_a_range_past_the_end_is_416(hub):
    assert hub.get(f"/lab/tiny/resolve/{REVISION}/config.json", {"Range": "bytes=99999-"})[0] == 416


def test_a_file_that_the_client_has_is_304(hub):
    tag = etag_of(files_of("lab/tiny", REVISION)["config.json"])
    assert hub.get(f"/lab/tiny/resolve/{REVISION}/config.json", {"If-None-Match": tag})[0] == 304


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/models/lab/nothing/revision/main", 404, "RepoNotFound"),
        ("/lab/nothing/resolve/main/config.json", 404, "RepoNotFound"),
        ("/api/models/lab/tiny/revision/0123", 404, "RevisionNotFound"),
        ("/lab/tiny/resolve/main/nothing.bin", 404, "EntryNotFound"),
        ("/api/models/lab/gated/revision/main", 401, "GatedRepo"),
        ("/lab/gated/resolve/main/config.json", 401, "GatedRepo"),
    ],
)
def test_refusals_carry_the_code_that_the_client_reads(hub, path, status, code):
    with hub.open("GET", path) as response:
        assert (response.status, response.headers["X-Error-Code"]) == (status, code)


@pytest.mark.parametrize(("token", "status"), [("hf_lab", 200), ("hf_other", 401)])
def test_a_gated_model_wants_its_token(hub, token, status):
    headers = {"Authorization": f"Bearer {token}"}
    assert hub.get("/lab/gated/resolve/main/config.json", headers)[0] == status


def test_revisions_are_commits_and_differ_in_their_weights():
    first, second = revisions_of("lab/tiny")
    assert len(first) == len(second) == 40
    assert int(first, 16) != int(second, 16)
    assert files_of("lab/tiny", first)["model.safetensors"] != files_of("lab/tiny", second)["model.safetensors"]


def test_the_weights_are_a_valid_safetensors_file():
    content = files_of("lab/tiny", REVISION)["model.safetensors"]
    (length,) = struct.unpack_from("<Q", content)
    tensor = json.loads(content[8 : 8 + length])["w"]
    assert tensor["data_offsets"] == [0, len(content) - 8 - length]
    assert 4 * tensor["shape"][0] == len(content) - 8 - length


def test_the_real_client_downloads_once_and_finds_its_cache_the_second_time(hub, tmp_path):
    client = str(Path(sys.executable).with_name("hf"))
    environment = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{hub.port}", "HF_HOME": str(tmp_path)}

    def download(*arguments: str) -> subprocess.CompletedProcess:
        command = [client, "download", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    before = counts(hub)["downloads"]
    revision = revisions_of("lab/tiny-pd")[0]
    assert download("lab/tiny-pd", "--revision", revision).returncode == 0
    snapshot = tmp_path / "hub" / "models--lab--tiny-pd" / "snapshots" / revision
    assert {file.name: file.read_bytes() for file in snapshot.iterdir()} == files_of("lab/tiny-pd", revision)
    assert counts(hub)["downloads"] == before + 4
    assert download("lab/tiny-pd", "--revision", revision).returncode == 0
    assert counts(hub)["downloads"] == before + 4
    assert download("lab/nothing").returncode == 1
    assert "requires approval" in download("lab/gated").stderr
