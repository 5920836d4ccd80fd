"""The Kubernetes manifests as objects."""

import functools
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
KUSTOMIZATION = FOLDER / "kustomization.yaml"

# Most are nested mappings of anything; the schemas say of what.
Manifest = dict[str, Any]


def files() -> list[Path]:
    """Manifests without the kustomization."""
    return [path for path in sorted(FOLDER.rglob("*.yaml")) if path != KUSTOMIZATION]


@functools.cache
def objects() -> list[tuple[str, Manifest]]:
    """Objects with their file. Parsed once: change copies only."""
    return [
        (path.relative_to(FOLDER).as_posix(), one)
        for path in files()
        for one in yaml.safe_load_all(path.read_text())
    ]


def the(kind: str, name: str = "fairhit-gateway") -> Manifest:
    """The one object of that kind and name."""
    (found,) = [
        one for _, one in objects() if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    return found


def pod(kind: str, name: str = "fairhit-gateway") -> Manifest:
    """Pod template of a Deployment or StatefulSet."""
    template: Manifest = the(kind, name)["spec"]["template"]
    return template
