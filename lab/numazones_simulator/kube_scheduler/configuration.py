"""Reads a KubeSchedulerConfiguration, as strictly as kube-scheduler does.

A key that kube-scheduler does not know keeps it from starting, so it does here; keys that it knows and that
nothing stands for here (plugins) are refused as well, as a simulation without them would say nothing. Those
without an effect on one scheduler alone (leader election, QPS of its client) are read and set aside
(kube-scheduler 1.36, KS ``config/v1/types.go``; specs/scheduler-extender.md, section 1).
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from numazones.apimachinery import duration
from numazones.errors import NumazonesError

_HTTP_TIMEOUT = 5.0


class InvalidSchedulerConfiguration(NumazonesError):
    """A file is no KubeSchedulerConfiguration; the message names the file and the key."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class ManagedResource(_Strict):
    """An extended resource that an extender decides on."""

    name: str
    ignored_by_scheduler: bool = False


class TLSConfig(_Strict):
    """TLS settings for an extender; contents of files given as data are not read here."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""


def _seconds(value: Any) -> Any:
    return duration.parse(value).total_seconds() if isinstance(value, str) else value


class ExtenderConfig(_Strict):
    """Settings of one extender."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = Field(False, alias="enableHTTPS")
    tls_config: TLSConfig = TLSConfig()
    http_timeout: Annotated[float, BeforeValidator(_seconds)] = Field(_HTTP_TIMEOUT, alias="httpTimeout")
    """Seconds that a whole call may take."""
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @model_validator(mode="after")
    def _has_weight(self) -> Self:
        if self.prioritize_verb and self.weight <= 0:
            raise ValueError("weight must be greater than 0 where there is a prioritizeVerb")
        return self


class Profile(_Strict):
    """A scheduler's name."""

    scheduler_name: str = "default-scheduler"


class Configuration(_Strict):
    """Part of a KubeSchedulerConfiguration that the simulated scheduler uses."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ExtenderConfig, ...] = ()
    percentage_of_nodes_to_score: int = Field(0, ge=0, le=100)
    pod_initial_backoff_seconds: int = Field(1, gt=0)
    pod_max_backoff_seconds: int = Field(10, gt=0)
    leader_election: dict[str, Any] | None = None
    client_connection: dict[str, Any] | None = None

    @field_validator("extenders")
    @classmethod
    def _one_binds(cls, extenders: tuple[ExtenderConfig, ...]) -> tuple[ExtenderConfig, ...]:
        if sum(bool(extender.bind_verb) for extender in extenders) > 1:
            raise ValueError("only one extender can have a bindVerb")
        return extenders

    @property
    def names(self) -> frozenset[str]:
        """The schedulers' names of its profiles."""
        return frozenset(profile.scheduler_name for profile in self.profiles)

    @property
    def ignored_resources(self) -> frozenset[str]:
        """Extended resources that only an extender looks at."""
        return frozenset(
            resource.name
            for extender in self.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        )


def read(path: Path) -> Configuration:
    """Read a configuration from a file, or from the ConfigMap that carries one to a cluster.

    Raises:
        InvalidConfiguration: the file cannot be read, or is not a configuration.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSchedulerConfiguration(f"{path}: {error.strerror or error}") from error
    except (InvalidSchedulerConfiguration, UnicodeDecodeError) as error:
        raise InvalidSchedulerConfiguration(f"{path}: {error}") from error


def parse(text: str) -> Configuration:
    """Read a configuration from YAML.

    Raises:
        InvalidConfiguration: it is none; the message names the key.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidSchedulerConfiguration(f"not YAML: {error}") from error
    if not isinstance(document, dict):
        raise InvalidSchedulerConfiguration("not a mapping; a KubeSchedulerConfiguration is expected")
    if document.get("kind") == "ConfigMap":
        texts = [*(document.get("data") or {}).values()]
        if len(texts) != 1:
            raise InvalidSchedulerConfiguration(
                f"a ConfigMap with one configuration is expected, not {len(texts)}"
            )
        return parse(str(texts[0]))
    try:
        return Configuration.model_validate(document)
    except ValidationError as error:
        raise InvalidSchedulerConfiguration("; ".join(map(_problem, error.errors()))) from error
    except duration.InvalidDuration as error:
        raise InvalidSchedulerConfiguration(f"httpTimeout: {error}") from error


def _problem(error: Any) -> str:
    """Name the key, as kube-scheduler does for one that it does not know."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    key = "".join(parts).lstrip(".")
    if error["type"] == "extra_forbidden":
        return f'unknown field "{key}"; leave it out, or correct it (the simulator has no plugins to set up)'
    return f"{key}: {error['msg'].removeprefix('Value error, ')}"
