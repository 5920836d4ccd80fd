"""Schemas of what is not Kubernetes' own: written after their documentation, trimmed to what we use."""

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d|w|y))+$"}


def _object(required: list[str], **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_METADATA = _object(["name"], name={"type": "string"}, namespace={"type": "string"}, labels=_TEXTS)

SERVICE_MONITOR = _object(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "monitoring.coreos.com/v1"},
    kind={"const": "ServiceMonitor"},
    metadata=_METADATA,
    spec=_object(
        ["endpoints", "selector"],
        selector=_object([], matchLabels=_TEXTS),
        endpoints={
            "type": "array",
            "minItems": 1,
            "items": _object(
                [],
                port={"type": "string"},
                path={"type": "string"},
                interval=_DURATION,
                scrapeTimeout=_DURATION,
            ),
        },
        jobLabel={"type": "string"},
        namespaceSelector=_object([], any={"type": "boolean"}, matchNames={"type": "array"}),
    ),
)

KUSTOMIZATION = _object(
    ["apiVersion", "kind", "resources"],
    apiVersion={"const": "kustomize.config.k8s.io/v1beta1"},
    kind={"const": "Kustomization"},
    namespace={"type": "string"},
    resources={"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    images={
        "type": "array",
        "items": _object(
            ["name"],
            name={"type": "string"},
            newName={"type": "string"},
            newTag={"type": "string"},
        ),
    },
)
