"""Which labels an object of a model stack carries, and what selects it."""

from __future__ import annotations

from llmd.names import Names
from llmd.roles import Role

MODEL = "llm-d.ai/model"
ROLE = "llm-d.ai/role"
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"


def common(names: Names, name: str) -> dict[str, str]:
    """Labels of an object called `name` (its `app.kubernetes.io/name`) that belongs to the model."""
    return {NAME: name, INSTANCE: names.model, PART_OF: "llm-d", MANAGED_BY: "pulumi"}


def pool_selector(names: Names) -> dict[str, str]:
    """What the InferencePool selects: every serving pod of the model, whatever its role."""
    return {MODEL: names.model}


def role_selector(names: Names, role: Role) -> dict[str, str]:
    """What a role's Deployment, Service, PDB and PodMonitor select."""
    return {MODEL: names.model, ROLE: role.label}


def model_server(names: Names, role: Role) -> dict[str, str]:
    """Labels of a role's Deployment and pods (a superset of both selectors)."""
    return {**common(names, names.deployment(role)), **role_selector(names, role)}


def router_selector(names: Names) -> dict[str, str]:
    """What the router's Deployment, Service and ServiceMonitor select."""
    return {NAME: names.router}


def router(names: Names) -> dict[str, str]:
    """Labels of the router's objects and pods.

    They lack `llm-d.ai/model`, so that the pool never selects a router pod.
    """
    return common(names, names.router)
