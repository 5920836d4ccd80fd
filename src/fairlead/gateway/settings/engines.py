"""Settings of the engines' side: which there are, and when one counts as well."""

from typing import Self

from pydantic import model_validator

from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import HttpPath, Names, Paths, WorkerUrls


class Engines(Group):
    """The engines."""

    worker_urls: WorkerUrls = setting(
        (), "the engines, http://HOST:PORT", "URL", shape="many", live=True, also=("static_backends",)
    )  # fmt: skip
    static_models: Names = setting(
        (), "model of each engine, in their order; else they are asked", "MODEL",
        shape="many", live=True,
    )  # fmt: skip
    ca_cert_paths: Paths = setting(
        (), "who vouches for https engines, besides the system's", "FILE", shape="many"
    )
    worker_api_key: str | None = setting(
        None, "the key the engines ask for; better in FAIRLEAD_WORKER_API_KEY", "KEY",
        also=("api_key",), secret=True,
    )  # fmt: skip

    @model_validator(mode="after")
    def _one_model_each(self) -> Self:
        if self.static_models and len(self.static_models) != len(self.worker_urls):
            engines, models = len(self.worker_urls), len(self.static_models)
            raise ValueError(
                f"static-models: expected one for each of {engines} engines, got {models}"
            )
        return self

    def engines(self) -> dict[str, str | None]:
        """URL -> the model it is said to have, None where it is to be asked."""
        models = self.static_models or (None,) * len(self.worker_urls)
        return dict(zip(self.worker_urls, models, strict=True))


class Health(Group):
    """Health of the engines."""

    health_check_interval_secs: float = setting(
        5, "between probes of an engine", "S", live=True, ge=0.01
    )
    health_check_timeout_secs: float = setting(5, "a probe's patience", "S", live=True, gt=0)
    health_check_endpoint: HttpPath = setting("/health", "what is probed", "PATH", live=True)
    health_failure_threshold: int = setting(
        3, "failed probes until it is down", "N", live=True, ge=1
    )
    health_success_threshold: int = setting(
        2, "good probes until one that was down is up again", "N", live=True, ge=1
    )
    disable_health_check: bool = setting(
        False, "probe only those that are not up, until they are", live=True
    )
