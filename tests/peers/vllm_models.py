"""Model directories by the hub's names, for a peer's tests: configurations and a tokenizer, no weights.

The tests name models of the hub, of which they need the shape. vLLM takes a name for a path where
there is one, so the tests run in a folder that holds these.
"""

import json
from pathlib import Path
from typing import Any

from fairhit.local.demo_model import SPECIAL, train_tokenizer

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
    "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}
OPT: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "word_embed_proj_dim": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50_272,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}
QWEN: dict[str, Any] = LLAMA | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "max_position_embeddings": 40_960,
    "vocab_size": 151_936,
}
# Stands in for a LLaVA, whose module in vLLM imports torchvision, which our environment leaves out: an image
# takes as many tokens, (336 / 14) ** 2.
PALIGEMMA: dict[str, Any] = {
    "architectures": ["PaliGemmaForConditionalGeneration"],
    "model_type": "paligemma",
    "text_config": {
        "model_type": "gemma",
        "hidden_size": 2048,
        "intermediate_size": 16_384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "vocab_size": 257_216,
        "num_image_tokens": 576,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "image_size": 336,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "num_image_tokens": 576,
        "patch_size": 14,
        "projection_dim": 2048,
    },
    "projection_dim": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "float16",
}

CONFIGS = {
    "facebook/opt-125m": OPT,
    "facebook/opt-350m": OPT | {"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24},
    "llava-hf/llava-1.5-7b-hf": PALIGEMMA,
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA,
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": LLAMA,
    "Qwen/Qwen3-0.6B": QWEN,
    "Qwen/Qwen3-8B": QWEN,
    "Qwen/Qwen2.5-VL-3B-Instruct": PALIGEMMA,
    "Qwen/Qwen1.5-7B": QWEN | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "Qwen/Qwen2.5-0.5B-Instruct": QWEN
    | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIAL[0],
    "eos_token": SPECIAL[1],
    "pad_token": SPECIAL[1],
}
IMAGES: dict[str, Any] = {
    "image_processor_type": "SiglipImageProcessor",
    "processor_class": "PaliGemmaProcessor",
    "size": {"height": 336, "width": 336},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "image_seq_length": 576,
}
PROCESSOR = {"processor_class": "PaliGemmaProcessor"}


def write_models(folder: Path) -> None:
    """Make a directory for each name that the tests use; those already there stay."""
    tokenizer = train_tokenizer()
    tokenizer.add_special_tokens(["<image>"])
    for name, config in CONFIGS.items():
        model = folder / name
        if (model / "config.json").is_file():
            continue
        model.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(model / "tokenizer.json"))
        files = {"tokenizer_config.json": TOKENIZER, "config.json": config}
        if config is PALIGEMMA:
            files |= {"preprocessor_config.json": IMAGES, "processor_config.json": PROCESSOR}
            files["config.json"] = config | {"image_token_index": tokenizer.token_to_id("<image>")}
        for file, content in files.items():
            (model / file).write_text(json.dumps(content, indent=2))
