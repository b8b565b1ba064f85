"""Settings: one TOML file, overridden by environment variables, overridden by command-line options.

The file is `roamcast.toml` in the working directory, or the one that ROAMCAST_CONFIG (`--config`) names. It has the
sections [node], [limits], [pipeline], [drtcluster] and [client]. docs/configuration.md lists all keys.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from roamcast.coordinates import COORDINATES
from roamcast.errors import InputError
from roamcast.settings_model import (
    CONFIG_VARIABLE,
    OTHER_VARIABLES,
    SECTIONS,
    ClientSettings,
    DrtClusterSettings,
    NodeSettings,
    PipelineSettings,
    SettingsSection,
    section_keys,
    variable_name,
)
from roamcast.validation import problem_text

__all__ = [
    "EffectiveSetting", "client_settings", "drtcluster_settings", "effective_settings", "find_config_file",
    "known_variables", "node_problems", "node_settings", "pipeline_settings", "settings_problems",
]  # fmt: skip

DEFAULT_FILE: Final = Path("roamcast.toml")

_HINT: Final = "see `roamcast config docs`"
_PAIR: Final = "must be a list of two numbers, such as [8.5, 53.5]"
_MESSAGES: Final = {"extra_forbidden": "unknown key"}
_PAIR_MESSAGES: Final = {"missing": _PAIR, "too_long": _PAIR, "tuple_type": _PAIR}


S = TypeVar("S", bound=SettingsSection)


def node_settings(**overrides: object) -> NodeSettings:
    """Load [node] and [limits]. `overrides` are command-line options; None means not given.

    Raises InputError that names the key, variable or option.
    """
    return _load_section(NodeSettings, "node", overrides)


def pipeline_settings(**overrides: object) -> PipelineSettings:
    """Load [pipeline], like `node_settings`."""
    return _load_section(PipelineSettings, "pipeline", overrides)


def drtcluster_settings(**overrides: object) -> DrtClusterSettings:
    """Load [drtcluster], like `node_settings`."""
    return _load_section(DrtClusterSettings, "drtcluster", overrides)


def client_settings(**overrides: object) -> ClientSettings:
    """Load [client], like `node_settings`."""
    return _load_section(ClientSettings, "client", overrides)


def find_config_file() -> Path | None:
    """The file that ROAMCAST_CONFIG names, else ./roamcast.toml if there is one. Raises InputError if it is missing."""
    if name := os.environ.get(CONFIG_VARIABLE):
        if not Path(name).is_file():
            raise InputError("no such file", where=name, hint=f"check --config and {CONFIG_VARIABLE}")
        return Path(name)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


class EffectiveSetting(NamedTuple):
    """The value of a key and where it comes from: `default`, a file, or an environment variable."""

    section: str
    key: str
    value: object
    origin: str
    is_secret: bool


def effective_settings() -> list[EffectiveSetting]:
    """Every setting as a command would see it now, without options. Raises InputError for the first invalid value."""
    sources = _Sources(find_config_file())
    sections = sources.build_all()
    for problem in sources.problems:
        raise problem
    result = []
    for section, settings in sections.items():
        for key in section_keys(section):
            origin = "default"
            if variable_name(section, key) in os.environ:
                origin = variable_name(section, key)
            elif key in sources.content.get(section, {}):
                origin = str(sources.path)
            is_secret = key in getattr(settings, "secrets", ())
            result.append(EffectiveSetting(section, key, getattr(settings, key), origin, is_secret))
    return result


def settings_problems(file: Path | None = None) -> list[InputError]:
    """Everything that is wrong with a settings file and the environment."""
    sources = _Sources(file or find_config_file())
    node = sources.build_all().get("node")
    if isinstance(node, NodeSettings):
        for key, message, hint in node_problems(node):
            sources.add(message, sources.origin("node", key), hint)
    known = known_variables()
    for name in sorted(os.environ):
        if name.startswith("ROAMCAST_") and name not in known:
            sources.add("unknown variable", name, _close_name(name, known))
    return sources.problems


def node_problems(settings: NodeSettings) -> Iterator[tuple[str, str, str]]:
    """What keeps a node from starting, although each value is valid: key, message and hint."""
    for key in ("tls_cert", "tls_key", "ca", "places"):
        path = getattr(settings, key)
        if path is not None and not path.is_file():
            yield key, f"no such file: {path}", "check the path"
    if (settings.tls_cert is None) != (settings.tls_key is None):
        present, missing = ("tls_cert", "tls_key") if settings.tls_key is None else ("tls_key", "tls_cert")
        yield present, f"{missing} is missing", "set both or neither"
    if settings.at and (fault := COORDINATES[settings.space].point_fault(*settings.at)):
        yield "at", str(fault), fault.hint


def known_variables() -> list[str]:
    """All ROAMCAST_* environment variables that have a meaning."""
    return [variable_name(section, key) for section in SECTIONS for key in section_keys(section)] + [*OTHER_VARIABLES]


def _close_name(name: str, names: list[str]) -> str:
    """A hint that names what was probably meant."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def _load_section(model: type[S], section: str, overrides: Mapping[str, object]) -> S:
    sources = _Sources(find_config_file(), {key: value for key, value in overrides.items() if value is not None})
    settings = sources.build(model, section)
    if settings is None or sources.problems:
        raise sources.problems[0]
    return settings


class _Sources:
    """Where values come from: a file, the environment and options. Collects in `problems` what is wrong with them."""

    def __init__(self, path: Path | None, options: Mapping[str, object] | None = None) -> None:
        self.path = path
        self.problems: list[InputError] = []
        self.content = {} if path is None else self._read(path)
        """The known sections and keys of the file."""
        self._options = options or {}

    def add(self, message: str, where: str, hint: str) -> None:
        """Add a problem."""
        self.problems.append(InputError(message, where=where, hint=hint))

    def build_all(self) -> dict[str, BaseModel]:
        """The sections that are valid."""
        node = self.build(NodeSettings, "node")
        sections: dict[str, BaseModel | None] = {
            "node": node,
            "limits": node and node.limits,
            "pipeline": self.build(PipelineSettings, "pipeline"),
            "drtcluster": self.build(DrtClusterSettings, "drtcluster"),
            "client": self.build(ClientSettings, "client"),
        }
        return {section: settings for section, settings in sections.items() if settings is not None}

    def build(self, model: type[S], section: str) -> S | None:
        """The settings of a section; None if a value is invalid."""
        environment: dict[str, Any] = {}
        try:
            environment = EnvSettingsSource(model)()
        except SettingsError:
            self.add("not JSON", "ROAMCAST_LIMITS", "set each limit in its own variable, such as ROAMCAST_LIMITS__BULK")
        values: dict[str, Any] = {**self.content.get(section, {}), **environment, **self._options}
        if section == "node":
            limits = self.content.get("limits", {}), environment.get("limits", {}), self._options.get("limits", {})
            values["limits"] = {key: value for source in limits for key, value in _as_dict(source).items()}
        try:
            return model(**values)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                messages = _PAIR_MESSAGES if problem["loc"][0] == "at" else _MESSAGES
                message = messages.get(problem["type"]) or problem_text(problem)
                where = self.origin(section, *map(str, problem["loc"]))
                self.add(message, where, "see --help" if where.startswith("--") else _HINT)
            return None

    def origin(self, section: str, key: str, *steps: str) -> str:
        """The option, the variable or the place in the file that a value comes from."""
        if key == "limits" and steps:
            section, key = "limits", steps[0]
        if key in self._options:
            return f"--{key.replace('_', '-')}"
        variable = variable_name(section, key)
        return variable if variable in os.environ else f"{self.path}: {section}.{key}"

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self.add(f"cannot read: {error.strerror}", str(path), "check the path")
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.add(f"not TOML: {error}", str(path), _HINT)
            return {}
        result = {}
        for section, keys in content.items():
            if section not in SECTIONS or not isinstance(keys, dict):
                self.add("unknown section", f"{path}: {section}", _close_name(section, list(SECTIONS)))
                continue
            known = list(section_keys(section))
            for key in keys:
                if key not in known:
                    self.add("unknown key", f"{path}: {section}.{key}", _close_name(key, known))
            result[section] = {key: value for key, value in keys.items() if key in known}
        return result


def _as_dict(value: object) -> dict[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else dict(value)  # type: ignore[call-overload]
