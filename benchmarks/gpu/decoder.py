"""A decoder of a given shape in plain PyTorch, random weights: what one forward pass costs, no more.

Grouped queries, gated MLP, RMS norm, rotary positions, a KV cache; fused products as engines have
them. Its answers mean nothing, but they are those of a transformer: the tests hold it to that.
"""

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from fairhit_lab.sim.hardware.models import TransformerModel

ROPE_THETA = 500_000.0
NORM_EPS = 1e-5


class Decoder:
    """`room` sequences of at most `length` tokens each fit its KV cache. Fills memory at once."""

    def __init__(
        self,
        shape: TransformerModel,
        *,
        room: int,
        length: int,
        device: str,
        dtype: torch.dtype,
        seed: int = 0,
    ) -> None:
        self.shape = shape
        self._make = torch.Generator(device=device).manual_seed(seed)
        self._place = {"device": device, "dtype": dtype}
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.embedding = self._weights(shape.vocab, shape.d)
        self.head = self.embedding if shape.tied_head else self._weights(shape.vocab, shape.d)
        self.gain = torch.ones(shape.d, **self._place)
        self.layers = [
            (
                self._weights(q + 2 * kv, shape.d),
                self._weights(shape.d, q),
                self._weights(2 * shape.ffn, shape.d),
                self._weights(shape.d, shape.ffn),
            )
            for _ in range(shape.layers)
        ]
        self.resize(room=room, length=length)

    def resize(self, *, room: int, length: int) -> None:
        """Another, empty cache; the weights stay."""
        shape = self.shape
        self.room, self.length = room, length
        size = (shape.layers, 2, room, shape.kv_heads, length, shape.head_dim)
        self.cache = torch.empty(0, **self._place)  # lets go of the old one first
        self.cache = torch.zeros(size, **self._place)
        self._cos, self._sin = self._rotations(length)

    def _weights(self, rows: int, columns: int) -> torch.Tensor:
        made = torch.randn(rows, columns, generator=self._make, **self._place)
        return made.mul_(columns**-0.5)

    def _rotations(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        half = torch.arange(0, self.shape.head_dim, 2, device=self._place["device"])
        speeds = ROPE_THETA ** (-half.float() / self.shape.head_dim)
        angles = torch.outer(torch.arange(length, device=speeds.device).float(), speeds)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(self._place["dtype"]), angles.sin().to(self._place["dtype"])

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor, context: int) -> torch.Tensor:
        """`tokens` (sequences, each) behind `context` cached ones; logits of each sequence's last.

        The cache keeps them. A pass is this, whether it is a prefill or, of one token each, a decode.
        """
        batch, each = tokens.shape
        assert batch <= self.room and context + each <= self.length, (batch, each, context)
        x = functional.embedding(tokens, self.embedding)
        for layer, (qkv, out, gate_up, down) in enumerate(self.layers):
            normed = functional.rms_norm(x, x.shape[-1:], self.gain, NORM_EPS)
            x = x + functional.linear(self._attention(layer, normed, qkv, context), out)
            normed = functional.rms_norm(x, x.shape[-1:], self.gain, NORM_EPS)
            gate, up = functional.linear(normed, gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, down)
        last = functional.rms_norm(x[:, -1], x.shape[-1:], self.gain, NORM_EPS)
        return functional.linear(last, self.head)

    def _attention(
        self, layer: int, x: torch.Tensor, qkv: torch.Tensor, context: int
    ) -> torch.Tensor:
        batch, each, _ = x.shape
        shape = self.shape
        split = [shape.heads, shape.kv_heads, shape.kv_heads]
        heads = functional.linear(x, qkv).view(batch, each, sum(split), shape.head_dim)
        queries, keys, values = heads.transpose(1, 2).split(split, dim=1)
        end = context + each
        self.cache[layer, 0, :batch, :, context:end] = self._turned(keys, context)
        self.cache[layer, 1, :batch, :, context:end] = values
        known = self.cache[layer, :, :batch, :, :end]
        got = self._attended(self._turned(queries, context), known[0], known[1])
        return got.transpose(1, 2).reshape(batch, each, -1)

    def _turned(self, heads: torch.Tensor, context: int) -> torch.Tensor:
        """Rotary positions from `context` on."""
        places = slice(context, context + heads.shape[2])
        first, second = heads.chunk(2, dim=-1)
        return heads * self._cos[places] + torch.cat([-second, first], dim=-1) * self._sin[places]

    def _attended(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        attend = functional.scaled_dot_product_attention
        batch, heads, each, width = queries.shape
        if each == 1:
            # The queries of a group see the same keys: together they are one product, not several.
            grouped = queries.view(batch, keys.shape[1], heads // keys.shape[1], width)
            return attend(grouped, keys, values).view(batch, heads, 1, width)
        if keys.shape[2] == each:
            return attend(queries, keys, values, is_causal=True, enable_gqa=True)
        behind = causal_lower_right(each, keys.shape[2])
        return attend(queries, keys, values, attn_mask=behind, enable_gqa=True)
