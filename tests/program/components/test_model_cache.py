"""The model cache: one download per model and revision, and what stays when the stack goes."""

from tests.program import program


def download(run: program.Program, model: str = "tiny-co"):
    (job,) = [one for one in run.kind("Job") if one.object_name.startswith(f"{model}-download-")]
    return job


def container(job):
    (only,) = job.inputs["spec"]["template"]["spec"]["containers"]
    return only


def test_the_download_ends_before_a_server_starts(dev):
    for fleet in ("tiny-co-server", "tiny-pd-prefill", "tiny-pd-decode"):
        job = download(dev, fleet.rsplit("-", 1)[0])
        assert job in dev.before(dev.one("Deployment", fleet))


def test_another_revision_is_another_job_and_another_directory(dev):
    other = program.dev({"models.tiny-co.model.revision": "d5b7c04d5b051557f9d4919fae0c75a861af4624"})
    assert download(other).object_name != download(dev).object_name
    assert download(other, "tiny-pd").object_name == download(dev, "tiny-pd").object_name
    targets = [
        next(each["value"] for each in container(download(run))["env"] if each["name"] == "TARGET")
        for run in (dev, other)
    ]
    assert targets[0] != targets[1]


def test_the_marker_is_written_after_the_download_and_read_before_it(dev):
    shell, flags, script = container(download(dev))["command"]
    assert (shell, flags) == ("sh", "-ec")
    steps = [script.index(step) for step in ('-e "$TARGET/.complete"', "hf download", 'touch "$TARGET/.complete"')]
    assert steps == sorted(steps)


def test_the_job_writes_where_the_claim_is(dev):
    job = download(dev)
    volumes = job.inputs["spec"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "model-cache", "persistentVolumeClaim": {"claimName": "tiny-co-model-cache"}}]
    assert dev.one("PersistentVolumeClaim", "tiny-co-model-cache") in dev.before(job)
    assert container(job)["image"] == "lab.llm-d.ai/vllm:0.27.1"


def test_a_claim_is_not_awaited_since_its_first_pod_may_bind_it(dev):
    claim = dev.one("PersistentVolumeClaim", "tiny-co-model-cache")
    assert claim.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert claim.inputs["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local-path",
    }


def test_a_private_hubs_token_is_referred_to_and_never_copied(dev):
    private = program.dev(
        {"hub": {"endpoint": "https://hub.example", "tokenSecret": {"name": "hub", "key": "HF_TOKEN"}}}
    )
    variables = {each["name"]: each for each in container(download(private))["env"]}
    assert variables["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}
    assert variables["HF_ENDPOINT"]["value"] == "https://hub.example"
    assert "HF_TOKEN" not in {each["name"] for each in container(download(dev))["env"]}


def test_someone_elses_claim_is_filled_and_never_owned():
    existing = program.dev({"models.tiny-co.cache": {"existingClaim": "weights"}})
    assert [one.object_name for one in existing.kind("PersistentVolumeClaim")] == ["tiny-pd-model-cache"]
    spec = download(existing).inputs["spec"]["template"]["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "weights"}


def test_only_a_retained_claim_and_its_namespace_outlive_the_stack():
    retained = program.dev({"models.tiny-co.cache.retain": True})
    staying = {(one.manifest["kind"], one.object_name) for one in retained.objects if one.retain_on_delete}
    assert staying == {("PersistentVolumeClaim", "tiny-co-model-cache"), ("Namespace", "llm-d-tiny-co")}


def test_a_failed_download_is_made_anew_and_awaited_to_its_deadline(dev):
    job = download(dev)
    assert job.inputs["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}
    assert job.inputs["spec"]["activeDeadlineSeconds"] == 300
    assert job.timeouts["create"] == "360s"
    assert "ttlSecondsAfterFinished" not in job.inputs["spec"]  # a refresh would find it gone and download again
