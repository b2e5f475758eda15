"""What an environment tells day-2 operations about itself: the versioned outputs contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from llmd.rates import RateError, Rates
from llmd.roles import Role
from llmd.triggers import Trigger

SCHEMA_VERSION = 1  # raised when a reader of the old shape would be wrong; docs/names.md


class OutputsError(ValueError):
    """Outputs that this version cannot read; the message names the place and what is expected there."""


@dataclass(frozen=True, kw_only=True)
class ScalerOutputs:
    """One ScaledObject; its bounds are its fleet's."""

    scaled_object: str
    hpa: str
    triggers: tuple[Trigger, ...]


@dataclass(frozen=True, kw_only=True)
class FleetOutputs:
    """One Deployment of model servers; `scaler` is None when its size is fixed (minimum == maximum)."""

    role: Role
    deployment: str
    accelerator: str
    gpus_per_replica: int
    minimum: int
    maximum: int
    scaler: ScalerOutputs | None = None


@dataclass(frozen=True, kw_only=True)
class ModelOutputs:
    """One model stack."""

    key: str
    namespace: str
    served_name: str  # what a request's `model` says
    topology: str  # prefill-decode or co-located
    endpoint: str  # base URL inside the cluster
    pool: str
    router: str  # Deployment and Service
    rates: Rates
    fleets: tuple[FleetOutputs, ...]

    def fleet(self, role: Role) -> FleetOutputs:
        """The fleet of a role.

        Raises:
            OutputsError: the model has none.
        """
        for fleet in self.fleets:
            if fleet.role is role:
                return fleet
        raise OutputsError(f"model {self.key} has no {role.value} fleet")


@dataclass(frozen=True, kw_only=True)
class EnvironmentOutputs:
    """A whole environment."""

    environment: str  # the Pulumi stack
    router_version: str
    engine_name: str
    engine_version: str
    prometheus_address: str  # as the triggers have it, from inside the cluster
    models: tuple[ModelOutputs, ...]

    def model(self, key: str) -> ModelOutputs:
        """The model of a key.

        Raises:
            OutputsError: listing the models there are.
        """
        for model in self.models:
            if model.key == key:
                return model
        known = ", ".join(model.key for model in self.models) or "none"
        raise OutputsError(f"no model {key!r} in environment {self.environment}; there are: {known}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, with `schemaVersion` first."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "environment": self.environment,
            "router": {"version": self.router_version},
            "engine": {"name": self.engine_name, "version": self.engine_version},
            "prometheus": {"address": self.prometheus_address},
            "models": {model.key: _model_to_dict(model) for model in self.models},
        }

    @classmethod
    def from_dict(cls, data: object) -> EnvironmentOutputs:
        """Inverse of `to_dict`.

        Raises:
            OutputsError: another schema version, or a field that is missing, unknown or of another type.
        """
        top = _Reader(data, "outputs")
        version = top.integer("schemaVersion")
        if version != SCHEMA_VERSION:
            raise OutputsError(
                f"outputs.schemaVersion: {version} was written by another version of this project, this one reads "
                f"{SCHEMA_VERSION}; use the version that deployed the environment, or deploy it with this one"
            )
        with top.section("router") as router, top.section("engine") as engine, top.section("prometheus") as prometheus:
            outputs = cls(
                environment=top.string("environment"),
                router_version=router.string("version"),
                engine_name=engine.string("name"),
                engine_version=engine.string("version"),
                prometheus_address=prometheus.string("address"),
                models=tuple(_model_from(key, reader) for key, reader in top.section("models").sections()),
            )
        top.end()
        return outputs


def _model_to_dict(model: ModelOutputs) -> dict[str, object]:
    return {
        "namespace": model.namespace,
        "servedName": model.served_name,
        "topology": model.topology,
        "endpoint": model.endpoint,
        "pool": model.pool,
        "router": model.router,
        "rates": model.rates.to_dict(),
        "fleets": {fleet.role.value: _fleet_to_dict(fleet) for fleet in model.fleets},
    }


def _fleet_to_dict(fleet: FleetOutputs) -> dict[str, object]:
    written: dict[str, object] = {
        "deployment": fleet.deployment,
        "accelerator": fleet.accelerator,
        "gpusPerReplica": fleet.gpus_per_replica,
        "replicas": {"min": fleet.minimum, "max": fleet.maximum},
    }
    if fleet.scaler is not None:
        written["scaler"] = {
            "scaledObject": fleet.scaler.scaled_object,
            "hpa": fleet.scaler.hpa,
            "triggers": {trigger.name: _trigger_to_dict(trigger) for trigger in fleet.scaler.triggers},
        }
    return written


def _trigger_to_dict(trigger: Trigger) -> dict[str, object]:
    return {"query": trigger.query, "threshold": trigger.threshold, "metricType": trigger.metric_type}


def _model_from(key: str, reader: _Reader) -> ModelOutputs:
    with reader:
        return ModelOutputs(
            key=key,
            namespace=reader.string("namespace"),
            served_name=reader.string("servedName"),
            topology=reader.string("topology"),
            endpoint=reader.string("endpoint"),
            pool=reader.string("pool"),
            router=reader.string("router"),
            rates=_rates_from(reader.section("rates")),
            fleets=tuple(_fleet_from(role, fleet) for role, fleet in reader.section("fleets").sections()),
        )


def _rates_from(reader: _Reader) -> Rates:
    try:
        return Rates.from_dict(reader.rest())
    except RateError as wrong:
        raise OutputsError(f"{reader.place}: {wrong}") from wrong


def _fleet_from(role: str, reader: _Reader) -> FleetOutputs:
    if role not in set(Role):
        raise OutputsError(f"{reader.place}: unknown role; known: {', '.join(Role)}")
    with reader, reader.section("replicas") as replicas:
        return FleetOutputs(
            role=Role(role),
            deployment=reader.string("deployment"),
            accelerator=reader.string("accelerator"),
            gpus_per_replica=reader.integer("gpusPerReplica"),
            minimum=replicas.integer("min"),
            maximum=replicas.integer("max"),
            scaler=_scaler_from(reader.section("scaler")) if reader.has("scaler") else None,
        )


def _scaler_from(reader: _Reader) -> ScalerOutputs:
    with reader:
        return ScalerOutputs(
            scaled_object=reader.string("scaledObject"),
            hpa=reader.string("hpa"),
            triggers=tuple(_trigger_from(name, trigger) for name, trigger in reader.section("triggers").sections()),
        )


def _trigger_from(name: str, reader: _Reader) -> Trigger:
    with reader:
        return Trigger(
            name=name,
            query=reader.string("query"),
            threshold=reader.string("threshold"),
            metric_type=reader.string("metricType"),
        )


class _Reader:
    """Takes the fields of one JSON object, and knows its place for errors. As a context it refuses fields left over."""

    def __init__(self, data: object, place: str) -> None:
        if not isinstance(data, dict):
            raise OutputsError(f"{place}: expected an object, not {_kind(data)}")
        self.place = place
        self._fields: dict[str, object] = {str(name): value for name, value in data.items()}

    def __enter__(self) -> _Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()

    def has(self, name: str) -> bool:
        return name in self._fields

    def string(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str):
            raise OutputsError(f"{self.place}.{name}: expected a string, not {_kind(value)}")
        return value

    def integer(self, name: str) -> int:
        value = self._take(name)
        # the engine carries every number as a float
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise OutputsError(f"{self.place}.{name}: expected a whole number, not {_kind(value)}")
        return int(value)

    def section(self, name: str) -> _Reader:
        return _Reader(self._take(name), f"{self.place}.{name}")

    def sections(self) -> Iterator[tuple[str, _Reader]]:
        for name in tuple(self._fields):
            yield name, self.section(name)

    def rest(self) -> dict[str, object]:
        fields, self._fields = self._fields, {}
        return fields

    def end(self) -> None:
        if self._fields:
            raise OutputsError(f"{self.place}: unknown field {', '.join(sorted(self._fields))}")

    def _take(self, name: str) -> object:
        if name not in self._fields:
            raise OutputsError(f"{self.place}.{name}: missing")
        return self._fields.pop(name)


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r}"
