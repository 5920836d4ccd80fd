"""LoRA adapters for the demo model, random like it: to try tenants that are adapters, without a download.

python -m fairlead.engines.demo_adapters FOLDER NAME...
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.engines.demo_model import SEED, demo_model, shapes, write_json
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

RANK = 8
TARGETS = ("q_proj", "v_proj")
# Large enough that an adapter answers other than the model does, or than another adapter.
DEVIATION = 0.3


def make_adapter(folder: Path, name: str) -> Path:
    """`folder`/`name`, in PEFT's format; the same bytes for the same name. Raises ConfigError."""
    from safetensors.numpy import save_file

    target = folder / name
    try:
        target.mkdir(parents=True, exist_ok=True)
        # One entry only: safetensors writes several in an order that changes from run to run.
        save_file(
            dict(adapter_weights(name)),
            target / "adapter_model.safetensors",
            metadata={"format": "pt"},
        )
        write_json(target / "adapter_config.json", config())
    except OSError as error:
        raise ConfigError(f"cannot write the demo adapter {name}: {error}") from None
    return target


def config() -> dict[str, object]:
    """What engines read of PEFT's `LoraConfig`."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(demo_model()),
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
    }


def adapter_weights(name: str) -> "Iterator[tuple[str, np.ndarray[Any, np.dtype[Any]]]]":
    """A and B of each layer's targets, drawn in a fixed order from a generator that the name seeds."""
    import numpy as np

    digest = hashlib.sha256(f"{SEED} {name}".encode()).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
    for weight, shape in shapes():
        module = weight.removesuffix(".weight")
        if not module.endswith(TARGETS):
            continue
        outputs, inputs = shape
        for half, size in (("lora_A", (RANK, inputs)), ("lora_B", (outputs, RANK))):
            drawn = rng.standard_normal(size, dtype=np.float32)
            yield f"base_model.model.{module}.{half}.weight", np.float32(DEVIATION) * drawn


if __name__ == "__main__":
    for each in sys.argv[2:]:
        sys.stdout.write(f"{make_adapter(Path(sys.argv[1]), each)}\n")
