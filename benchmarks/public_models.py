"""Classes of public models, with tiny random configurations: nothing is downloaded.

``transformers`` is not among the dependencies of boundlab; without it there is no table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, TOKENS = 8, 4
TEXT = (TOKENS, WIDTH)
IMAGE = (3, 16, 16)

SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
ENCODER = {**SMALL, "intermediate_size": 12, "max_position_embeddings": 16}
DECODER = {**ENCODER, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": 0}
VISION = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "image_size": 16,
    "patch_size": 8,
}
STAGES = {"hidden_sizes": [4, 8], "depths": [1, 1]}


@dataclass(frozen=True)
class PublicModel:
    """A class of transformers, by the name that its configuration begins with.

    shape: of one sample of the input that moves. options: of the configuration. part: the
    part of the model that is run, of those with an encoder and a decoder. eager: whether attention
    is written out, instead of torch's operator.
    """

    name: str
    shape: tuple[int, ...]
    options: dict[str, Any]
    part: str = ""
    eager: bool = False
    call: dict[str, Any] = field(default_factory=dict)

    @property
    def argument(self) -> str:
        if len(self.shape) == 3:
            return "pixel_values"
        return "inputs_embeds"

    def build(self) -> nn.Module:
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, f"{self.name}Config")(**self.options)
        if self.eager:
            config._attn_implementation = "eager"
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = getattr(transformers, f"{self.name}{self.part or 'Model'}")(config)
            stir(model)
        return Hidden(model, self.argument, self.call)

    def example(self, batch: int = 1) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(batch, *self.shape, generator=generator)


class Hidden(nn.Module):
    """A model as a function of embeddings or of images: its last hidden states."""

    def __init__(self, model: nn.Module, argument: str, call: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.argument, self.call = model.eval(), argument, call

    def forward(self, x: Tensor) -> Tensor:
        found = self.model(**{self.argument: x}, **self.call)
        return found.last_hidden_state.flatten(1)


def stir(model: nn.Module) -> None:
    """Weights of the size that trained ones have: initial ones of 0.02 would hide everything."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.7 / parameter[0].numel() ** 0.5)


def _table(*models: PublicModel) -> dict[str, PublicModel]:
    return {model.name + ("-eager" if model.eager else ""): model for model in models}


NO_CACHE = {"use_cache": False}
GPT2 = {"n_embd": WIDTH, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 11}
SWIN = {
    "image_size": 16, "patch_size": 2, "embed_dim": 4, "depths": [2], "num_heads": [2],
    "window_size": 4,
}  # fmt: skip
T5 = {
    "d_model": WIDTH, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2, "vocab_size": 11,
}  # fmt: skip
MODELS = _table(
    PublicModel("ViT", IMAGE, VISION),
    PublicModel("Beit", IMAGE, VISION),
    PublicModel("Dinov2", IMAGE, VISION),
    PublicModel("Swin", IMAGE, SWIN),
    PublicModel("ConvNext", IMAGE, {**STAGES, "num_stages": 2, "patch_size": 2}),
    PublicModel("ConvNextV2", IMAGE, {**STAGES, "num_stages": 2, "patch_size": 2}),
    PublicModel("ResNet", IMAGE, {**STAGES, "embedding_size": 4}),
    PublicModel("Bit", IMAGE, {**STAGES, "embedding_size": 4, "num_groups": 2}),
    PublicModel("RegNet", IMAGE, {**STAGES, "embedding_size": 4, "groups_width": 4}),
    PublicModel("PoolFormer", IMAGE, {
        **STAGES, "num_encoder_blocks": 2, "patch_sizes": [3, 3], "strides": [4, 2],
        "padding": [1, 1],
    }),
    PublicModel("MobileViT", (3, 32, 32), {
        "image_size": 32, "hidden_sizes": [8, 8, 8], "neck_hidden_sizes": [4, 4, 4, 4, 4, 4, 8],
        "num_attention_heads": 2, "expand_ratio": 1.0,
    }),
    PublicModel("Segformer", IMAGE, {
        "num_encoder_blocks": 1, "depths": [1], "sr_ratios": [2], "hidden_sizes": [8],
        "patch_sizes": [3], "strides": [4], "num_attention_heads": [2], "mlp_ratios": [2],
    }),
    PublicModel("Bert", TEXT, ENCODER),
    PublicModel("Roberta", TEXT, ENCODER),
    PublicModel("Albert", TEXT, {**ENCODER, "embedding_size": WIDTH}),
    PublicModel("Electra", TEXT, {**ENCODER, "embedding_size": WIDTH}),
    PublicModel("DistilBert", TEXT, {
        "dim": WIDTH, "n_layers": 1, "n_heads": 2, "hidden_dim": 12, "vocab_size": 11,
        "max_position_embeddings": 16,
    }),
    PublicModel("DebertaV2", TEXT, {**ENCODER, "relative_attention": True,
                                    "pos_att_type": ["p2c", "c2p"]}),
    PublicModel("FNet", TEXT, ENCODER),
    PublicModel("GPT2", TEXT, GPT2, call=NO_CACHE),
    PublicModel("GPTNeoX", TEXT, ENCODER, call=NO_CACHE),
    PublicModel("OPT", TEXT, {**ENCODER, "ffn_dim": 12, "word_embed_proj_dim": WIDTH},
                call=NO_CACHE),
    PublicModel("Llama", TEXT, DECODER, call=NO_CACHE),
    PublicModel("Llama", TEXT, DECODER, call=NO_CACHE, eager=True),
    PublicModel("Qwen2", TEXT, DECODER, call=NO_CACHE),
    PublicModel("Phi3", TEXT, DECODER, call=NO_CACHE),
    PublicModel("Gemma2", TEXT, DECODER, call=NO_CACHE),
    PublicModel("Mixtral", TEXT, {
        **DECODER, "num_local_experts": 3, "num_experts_per_tok": 2,
        "experts_implementation": "batched_mm",
    }, call=NO_CACHE),
    PublicModel("Falcon", TEXT, {**SMALL, "alibi": False}, call=NO_CACHE),
    PublicModel("Bloom", TEXT, {"hidden_size": WIDTH, "n_layer": 1, "n_head": 2, "vocab_size": 11},
                call=NO_CACHE),
    PublicModel("T5", TEXT, T5, part="EncoderModel"),
    PublicModel("T5", TEXT, T5, part="EncoderModel", eager=True),
    PublicModel("Mamba", TEXT, {
        "hidden_size": WIDTH, "num_hidden_layers": 1, "vocab_size": 11, "state_size": 4,
    }, call=NO_CACHE),
    PublicModel("Rwkv", TEXT, {
        "hidden_size": WIDTH, "num_hidden_layers": 2, "attention_hidden_size": WIDTH,
        "intermediate_size": 12, "vocab_size": 11,
    }, call=NO_CACHE),
)  # fmt: skip
