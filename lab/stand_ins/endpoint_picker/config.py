"""What an EndpointPickerConfig says, read as strictly as the real endpoint picker reads it.

Any unknown field, plugin type or parameter, wrong type, or reference to a plugin that is not declared is an error that
names its place. What the real loader adds by itself is added here: a profile handler for one profile, and the data
producers that a filter or scorer needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.stand_ins.endpoint_picker.dialect import DIALECTS, Dialect
from lab.stand_ins.endpoint_picker.plugin_types import (
    DISAGG_HANDLER,
    IN_PROFILES,
    INFLIGHT_PRODUCER,
    PLUGIN_TYPES,
    PREFIX_PRODUCER,
    SINGLE_HANDLER,
    Kind,
    Parameter,
    Role,
)
from lab.stand_ins.endpoint_picker.strict import ConfigError, a_list, a_string, an_object, document, parameter_value

KIND = "EndpointPickerConfig"

DEFAULT_TEXT = """
apiVersion: {api_version}
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: queue-scorer, weight: 2}}
  - {{pluginRef: kv-cache-utilization-scorer, weight: 2}}
  - {{pluginRef: prefix-cache-scorer, weight: 3}}
"""  # what the picker runs when it gets no configuration: the chart's default scorers

_FEATURE_GATES = ("flowControl", "prepareDataPlugins", "dataLayer")
_TOP = ("apiVersion", "kind", "featureGates", "plugins", "schedulingProfiles", "requestHandler", "dataLayer")
_TOP_BEFORE_V1 = (*_TOP, "saturationDetector", "parser")
_PRODUCER_REFERENCES = {"prefixMatchInfoProducerName": PREFIX_PRODUCER, "inFlightLoadProducerName": INFLIGHT_PRODUCER}


@dataclass(frozen=True)
class Plugin:
    """One declared (or added) plugin with every parameter filled in."""

    name: str
    type: str
    parameters: Mapping[str, object]

    @property
    def role(self) -> Role:
        """What it does."""
        return PLUGIN_TYPES[self.type].role

    def number(self, key: str) -> float:
        """Parameter `key` as a number."""
        value = self.parameters[key]
        if not isinstance(value, (int, float)):
            raise TypeError(f"{self.type}.{key} is no number")
        return float(value)

    def mapping(self, key: str) -> Mapping[str, str]:
        """Parameter `key` as an object of strings."""
        value = self.parameters[key]
        if not isinstance(value, Mapping):
            raise TypeError(f"{self.type}.{key} is no object")
        return {str(name): str(item) for name, item in value.items()}


@dataclass(frozen=True)
class Profile:
    """One scheduling profile: filters in their order and weighted scorers; the best score is picked."""

    name: str
    filters: tuple[Plugin, ...]
    scorers: tuple[tuple[Plugin, float], ...]


@dataclass(frozen=True, kw_only=True)
class PickerConfig:
    """A checked configuration.

    Attributes:
        prefill_decider: Decides on a prefill leg; None means that there never is one.
        decode_profile: Profile whose endpoint receives the request.
        prefill_profile: Profile of the prefill leg.
        prefix_producer: None when nothing asks for prefix matches: then every token counts as uncached.
        inflight_producer: None when nothing asks for in-flight load: then there are no in-flight series.
        warnings: What the picker says at start about it.
    """

    profiles: Mapping[str, Profile]
    handler: Plugin
    prefill_decider: Plugin | None
    decode_profile: str
    prefill_profile: str
    prefix_producer: Plugin | None
    inflight_producer: Plugin | None
    warnings: tuple[str, ...] = ()


def load(text: str, dialect: Dialect = DIALECTS["0.11"]) -> PickerConfig:
    """The configuration in the YAML (or JSON) document `text`; an empty one means the default scorers.

    Raises:
        ConfigError: It is refused.
    """
    if not text.strip():
        text = DEFAULT_TEXT.format(api_version=dialect.api_versions[0])
    top = an_object(document(text), "configuration", None)
    warnings = _header(top, dialect)
    plugins = _with_producers(_plugins(top.get("plugins"), dialect))
    declared = {plugin.name: plugin for plugin in plugins}
    profiles = _profiles(top.get("schedulingProfiles"), plugins, declared)
    _other_sections(top, declared)
    handler = _handler(plugins, profiles)
    if handler.type == DISAGG_HANDLER:
        decider = _prefill_decider(handler, plugins)
        decode, prefill = _stages(handler, decider, profiles)
    else:
        decider, decode, prefill = None, next(iter(profiles)), ""
    return PickerConfig(
        profiles=profiles,
        handler=handler,
        prefill_decider=decider,
        decode_profile=decode,
        prefill_profile=prefill,
        prefix_producer=_only(plugins, PREFIX_PRODUCER),
        inflight_producer=_only(plugins, INFLIGHT_PRODUCER),
        warnings=warnings,
    )


def _header(top: dict[str, object], dialect: Dialect) -> tuple[str, ...]:
    """Check version, kind, field names and feature gates; return the warnings."""
    version = top.get("apiVersion")
    known = (*dialect.api_versions, *dialect.deprecated_api_versions)
    if version not in known:
        raise ConfigError(
            f"apiVersion: {version!r} is not served by router {dialect.version} (served: {', '.join(known)})"
        )
    if top.get("kind") != KIND:
        raise ConfigError(f"kind: must be {KIND}, not {top.get('kind')!r}")
    if "flowControl" in top:
        raise ConfigError("flowControl: this stand-in has no flow control")
    an_object(top, "configuration", _TOP if version == "llm-d.ai/v1" else _TOP_BEFORE_V1)
    for index, gate in enumerate(a_list(top.get("featureGates"), "featureGates")):
        name, _, state = a_string(gate, f"featureGates[{index}]").partition("=")
        if name not in _FEATURE_GATES or state not in {"", "true", "false"}:
            raise ConfigError(f"featureGates[{index}]: unknown gate {gate!r}")
        if name == "flowControl" and state != "false":
            raise ConfigError(f"featureGates[{index}]: this stand-in has no flow control")
    if version in dialect.deprecated_api_versions:
        return (f"apiVersion {version} is deprecated, use {dialect.api_versions[0]}",)
    return ()


def _plugins(value: object, dialect: Dialect) -> list[Plugin]:
    """The declared plugins in their order."""
    plugins: list[Plugin] = []
    for index, item in enumerate(a_list(value, "plugins")):
        path = f"plugins[{index}]"
        entry = an_object(item, path, ("name", "type", "parameters"))
        kind = a_string(entry.get("type"), f"{path}.type")
        if kind in dialect.removed_plugin_types:
            instead = dialect.removed_plugin_types[kind]
            raise ConfigError(f"{path}.type: {kind!r} was removed before router {dialect.version}, use {instead!r}")
        if kind not in PLUGIN_TYPES:
            raise ConfigError(
                f"{path}.type: unknown plugin type {kind!r} (known here: {', '.join(sorted(PLUGIN_TYPES))})"
            )
        name = a_string(entry["name"], f"{path}.name") if entry.get("name") else kind
        if any(plugin.name == name for plugin in plugins):
            raise ConfigError(f"{path}.name: {name!r} is declared twice")
        plugins.append(Plugin(name, kind, _parameters(entry.get("parameters"), kind, f"{path}({kind}).parameters")))
    return plugins


def _parameters(value: object, kind: str, path: str) -> dict[str, object]:
    """Every parameter of the plugin type `kind`: as given, or its default."""
    known = PLUGIN_TYPES[kind].parameters
    given = an_object({} if value is None else value, path, None)
    for name in given:
        if name not in known:
            raise ConfigError(f"{path}: unknown field {name!r} (known: {', '.join(known) or 'none'})")
    values: dict[str, object] = {}
    for name, parameter in known.items():
        item = given.get(name)
        values[name] = parameter.default if item is None else parameter_value(item, parameter, f"{path}.{name}")
    return values


def _with_producers(plugins: list[Plugin]) -> list[Plugin]:
    """Add the data producers that a declared plugin needs and nobody declared; check the references to them."""
    types = [PLUGIN_TYPES[plugin.type] for plugin in plugins]
    needed = {
        PREFIX_PRODUCER: any(item.consumes_prefix_matches for item in types),
        INFLIGHT_PRODUCER: any(item.consumes_inflight_load for item in types),
    }
    for kind, is_needed in needed.items():
        present = [plugin for plugin in plugins if plugin.type == kind]
        if len(present) > 1:
            raise ConfigError(f"plugins: this stand-in takes one {kind}")
        if is_needed and not present:
            if any(plugin.name == kind for plugin in plugins):
                raise ConfigError(f"plugins: {kind} must be added, but a plugin of another type has its name")
            plugins = [*plugins, Plugin(kind, kind, _parameters(None, kind, kind))]
    for plugin in plugins:
        for key, kind in _PRODUCER_REFERENCES.items():
            name = plugin.parameters.get(key)
            if name and not any(other.name == name and other.type == kind for other in plugins):
                raise ConfigError(f"plugins({plugin.name}).parameters.{key}: no {kind} is named {name!r}")
    return plugins


def _profiles(value: object, plugins: Sequence[Plugin], declared: Mapping[str, Plugin]) -> dict[str, Profile]:
    """The scheduling profiles; with none written, one named `default` of every filter, scorer and picker."""
    items = a_list(value, "schedulingProfiles")
    if not items:
        items = [{"name": "default", "plugins": [{"pluginRef": p.name} for p in plugins if p.role in IN_PROFILES]}]
    profiles: dict[str, Profile] = {}
    for index, item in enumerate(items):
        path = f"schedulingProfiles[{index}]"
        entry = an_object(item, path, ("name", "plugins"))
        name = a_string(entry.get("name"), f"{path}.name")
        if name in profiles:
            raise ConfigError(f"{path}.name: {name!r} is declared twice")
        profiles[name] = _profile(name, a_list(entry.get("plugins"), f"{path}.plugins"), declared, f"{path}({name})")
    return profiles


def _profile(name: str, items: list[object], declared: Mapping[str, Plugin], path: str) -> Profile:
    filters: list[Plugin] = []
    scorers: list[tuple[Plugin, float]] = []
    pickers = 0
    for index, item in enumerate(items):
        place = f"{path}.plugins[{index}]"
        entry = an_object(item, place, ("pluginRef", "weight"))
        reference = a_string(entry.get("pluginRef"), f"{place}.pluginRef")
        plugin = declared.get(reference)
        if plugin is None:
            raise ConfigError(f"{place}.pluginRef: no plugin is named {reference!r} (declared: {', '.join(declared)})")
        given = entry["weight"] if entry.get("weight") is not None else 1.0  # written as 0, it stays 0
        weight = parameter_value(given, Parameter(Kind.NUMBER), f"{place}.weight")
        if plugin.role is Role.FILTER:
            filters.append(plugin)
        elif plugin.role is Role.SCORER:
            scorers.append((plugin, float(str(weight))))
        elif plugin.role is Role.PICKER:
            pickers += 1
        else:
            raise ConfigError(
                f"{place}.pluginRef: {reference!r} is a {plugin.role.value}, it does not belong in a profile"
            )
    if pickers > 1:
        raise ConfigError(f"{path}.plugins: {pickers} pickers, a profile has one")
    return Profile(name, tuple(filters), tuple(scorers))


def _other_sections(top: dict[str, object], declared: Mapping[str, Plugin]) -> None:
    """Check the sections that change nothing here, as far as references and field names go."""

    def reference(value: object, path: str) -> None:
        name = a_string(an_object(value, path, ("pluginRef",)).get("pluginRef"), f"{path}.pluginRef")
        if name not in declared:
            raise ConfigError(f"{path}.pluginRef: no plugin is named {name!r}")

    for name in ("saturationDetector", "parser"):
        if top.get(name) is not None:
            reference(top[name], name)
    handler = an_object(top.get("requestHandler") or {}, "requestHandler", ("parsers",))
    for index, parser in enumerate(a_list(handler.get("parsers"), "requestHandler.parsers")):
        reference(parser, f"requestHandler.parsers[{index}]")
    layer = an_object(top.get("dataLayer") or {}, "dataLayer", ("injectDefaults", "sources"))
    if not isinstance(layer.get("injectDefaults", True), bool):
        raise ConfigError(f"dataLayer.injectDefaults: must be a boolean, not {layer['injectDefaults']!r}")
    for index, item in enumerate(a_list(layer.get("sources"), "dataLayer.sources")):
        path = f"dataLayer.sources[{index}]"
        source = an_object(item, path, ("pluginRef", "extractors"))
        reference({"pluginRef": source.get("pluginRef")}, path)
        for number, extractor in enumerate(a_list(source.get("extractors"), f"{path}.extractors")):
            reference(extractor, f"{path}.extractors[{number}]")


def _handler(plugins: Sequence[Plugin], profiles: Mapping[str, Profile]) -> Plugin:
    """The profile handler; one profile needs none."""
    handlers = [plugin for plugin in plugins if plugin.role is Role.PROFILE_HANDLER]
    if len(handlers) > 1:
        raise ConfigError(f"plugins: {len(handlers)} profile handlers, there can be one")
    if not handlers and len(profiles) > 1:
        raise ConfigError(f"plugins: {len(profiles)} scheduling profiles and no profile handler")
    handler = handlers[0] if handlers else Plugin(SINGLE_HANDLER, SINGLE_HANDLER, {})
    if handler.type == SINGLE_HANDLER and len(profiles) != 1:
        raise ConfigError(f"plugins({handler.name}): needs exactly one scheduling profile, there are {len(profiles)}")
    return handler


def _prefill_decider(handler: Plugin, plugins: Sequence[Plugin]) -> Plugin | None:
    """The decider that `disagg-profile-handler` names, if it names one."""
    deciders = handler.mapping("deciders")
    path = f"plugins({handler.name}).parameters.deciders"
    if "encode" in deciders:
        raise ConfigError(f"{path}.encode: this stand-in has no encode stage")
    if "prefill" not in deciders:
        return None
    name = deciders["prefill"]
    decider = next((plugin for plugin in plugins if plugin.name == name), None)
    if decider is None or decider.role is not Role.DECIDER:
        raise ConfigError(f"{path}.prefill: no decider is named {name!r}")
    if plugins.index(decider) > plugins.index(handler):
        raise ConfigError(f"{path}.prefill: declare {name!r} before {handler.name!r}")
    return decider


def _stages(handler: Plugin, decider: Plugin | None, profiles: Mapping[str, Profile]) -> tuple[str, str]:
    """Names of the decode and the prefill profile."""
    names = {"decode": "decode", "prefill": "prefill"} | dict(handler.mapping("profiles"))
    for stage in ("decode", "prefill") if decider else ("decode",):
        if names[stage] not in profiles:
            raise ConfigError(
                f"plugins({handler.name}).parameters: no scheduling profile {names[stage]!r} for the {stage} stage"
            )
    return names["decode"], names["prefill"]


def _only(plugins: Sequence[Plugin], kind: str) -> Plugin | None:
    return next((plugin for plugin in plugins if plugin.type == kind), None)
