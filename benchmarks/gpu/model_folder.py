"""A model's folder with nothing learned in it: a shape, and a tokenizer of a word per id.

For `--load-format dummy`: no weights are there or needed.
"""

import json
from pathlib import Path

from fairhit_lab.sim.hardware.models import TransformerModel


def write_model(folder: Path, shape: TransformerModel, *, positions: int, dtype: str) -> None:
    """Write the files that vLLM reads of a Llama of this shape."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.d,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": positions,
        "vocab_size": shape.vocab,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": shape.tied_head,
        "torch_dtype": dtype,
        "initializer_range": 0.02,
    }
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(shape.vocab)}, unk_token="t2"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "t0",
        "eos_token": "t1",
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
