"""Whose series a query is about: the pool of one router, and the fleet of one role in it."""

from __future__ import annotations

from dataclasses import dataclass

from llmd.names import Names
from llmd.roles import Role


@dataclass(frozen=True, kw_only=True)
class Pool:
    """An InferencePool and the Prometheus job that scrapes its endpoint picker."""

    name: str
    namespace: str
    router_job: str

    @classmethod
    def of(cls, names: Names) -> Pool:
        """The pool of a model."""
        return cls(name=names.pool, namespace=names.namespace, router_job=names.router_job)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The pods of one role: a Deployment in a pool and the Prometheus job that scrapes its engines."""

    pool: Pool
    role: Role
    deployment: str
    engine_job: str

    @classmethod
    def of(cls, names: Names, role: Role) -> Fleet:
        """The fleet of a model's role."""
        return cls(pool=Pool.of(names), role=role, deployment=names.deployment(role), engine_job=names.engine_job(role))
