"""Which environment variables make Pulumi use one engine and one backend, and nothing outside this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LAB_PASSPHRASE = "lab"  # noqa: S105 - protects nothing: the lab's state holds no secret but its own throw-away tokens


def backend_environment(backend: str, passphrase: str = LAB_PASSPHRASE) -> dict[str, str]:
    """Variables, to be laid over the caller's, for a `pulumi` that keeps its state in `backend`.

    Args:
        backend: URL of the state: `file:///directory` or `s3://bucket?endpoint=…`.
        passphrase: what encrypts the secrets of the stacks there.
    """
    return {"PULUMI_BACKEND_URL": backend, "PULUMI_CONFIG_PASSPHRASE": passphrase}


def pulumi_environment(home: Path, backend: str, passphrase: str = LAB_PASSPHRASE) -> dict[str, str]:
    """`backend_environment` for an engine of our own, which asks no network and no user.

    Args:
        home: the engine's own directory (`PULUMI_HOME`): plugins, credentials, selected stacks.
        backend: as there.
        passphrase: as there.
    """
    return backend_environment(backend, passphrase) | {
        "PULUMI_HOME": str(home),
        "PULUMI_CREDENTIAL_STORE": "plaintext",  # or it asks a key ring that a server does not have
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",  # or each host on PATH draws a warning
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
