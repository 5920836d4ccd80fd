"""The demo model: a small Llama with random weights and its own tokenizer, made here, not downloaded.

The model answers with gibberish; batching, streaming, prefix cache and fairness are real. LoRA adapters for
it are as random, to try tenants that are adapters:

    python -m fairhit.local.demo_model FOLDER NAME...
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairhit.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

SEED = 20250124  # any number; the day arXiv:2501.14312 appeared
VOCABULARY = 2048
CONTEXT = 8192  # positions, in tokens

# Small enough for one thread, large enough that computing it outweighs the HTTP around it.
ARCHITECTURE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": CONTEXT,
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "initializer_range": 0.02,
    "note": f"random weights, seed {SEED}, never trained",
}

# LoRA adapters of the demo model.
RANK = 8
TARGETS = ("q_proj", "v_proj")
# Large enough that the answers of adapters and of the model differ.
DEVIATION = 0.3

SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LABEL = """# fairhit demo model

RANDOM WEIGHTS (seed {seed}). This model was never trained: it answers with gibberish and says
nothing about any real model. fairhit made it to show scheduling on real engines. Delete the folder at
will; it is made again.
"""


def demo_model() -> Path:
    """Return the model's folder, made on first use. An incomplete one never has this name."""
    folder = cache_dir() / f"demo-model-random-weights-{recipe()}"
    if not (folder / "config.json").is_file():
        make_whole(folder)
    return folder


def cache_dir() -> Path:
    """Return the folder of this user's caches (XDG)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The standard requires to ignore a relative path.
    root = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return root / "fairhit"


def recipe() -> str:
    """Return a digest of the model's definition, for the name of its folder."""
    parts = [ARCHITECTURE, SPECIAL, CHAT_TEMPLATE, SEED]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]


def make_whole(folder: Path) -> None:
    """Build the model in a temporary folder and rename that, so that no reader finds half a model."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"cannot write the demo model: {error}") from None
    try:
        write_model(partial)
        if folder.exists():  # incomplete: it has no config.json
            shutil.rmtree(folder)
        partial.rename(folder)
    except OSError as error:
        # Another process may have made the same model meanwhile.
        if not (folder / "config.json").is_file():
            raise ConfigError(f"cannot write the demo model: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_model(folder: Path) -> None:
    """Write all files of the model, with the same bytes every time."""
    from safetensors.numpy import save_file

    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[1],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    # One entry only: safetensors writes several in an order that changes from run to run.
    save_file(dict(weights()), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})
    (folder / "README.md").write_text(LABEL.format(seed=SEED), encoding="utf-8")
    # Last, as its presence means that the model is complete.
    write_json(folder / "config.json", ARCHITECTURE)


def write_json(path: Path, content: object) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def train_tokenizer() -> Any:
    """Train a byte-level BPE tokenizer on text that every machine has: Python's reference topics."""
    from pydoc_data.topics import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([topics[name] for name in sorted(topics)], trainer)
    return tokenizer


def weights() -> "Iterator[tuple[str, np.ndarray[Any, np.dtype[Any]]]]":
    """Yield every tensor of a Llama, drawn in a fixed order from one seeded generator."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(SEED))
    for name, shape in shapes():
        if len(shape) == 1:  # the norms' gains
            yield name, np.ones(shape, dtype=np.float32)
        else:
            yield name, 0.02 * rng.standard_normal(shape, dtype=np.float32)


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensor names that `LlamaForCausalLM` reads, with their shapes."""
    hidden, inner = _size("hidden_size"), _size("intermediate_size")
    queries = _size("num_attention_heads") * _size("head_dim")
    keys = _size("num_key_value_heads") * _size("head_dim")
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for layer in range(_size("num_hidden_layers")):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.self_attn.q_proj.weight", (queries, hidden)
        yield f"{at}.self_attn.k_proj.weight", (keys, hidden)
        yield f"{at}.self_attn.v_proj.weight", (keys, hidden)
        yield f"{at}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
        yield f"{at}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{at}.mlp.up_proj.weight", (inner, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)


def _size(name: str) -> int:
    size = ARCHITECTURE[name]
    assert isinstance(size, int), name
    return size


def make_adapter(folder: Path, name: str) -> Path:
    """Write adapter `folder`/`name` in PEFT's format, deterministically. Raises ConfigError."""
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
        write_json(target / "adapter_config.json", adapter_config())
    except OSError as error:
        raise ConfigError(f"cannot write the demo adapter {name}: {error}") from None
    return target


def adapter_config() -> dict[str, object]:
    """Return the fields of PEFT's `LoraConfig` that engines read."""
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
    """Yield A and B of each layer's targets, drawn in a fixed order from a generator seeded by the name."""
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
