"""The language model as a Hugging Face model: saves, loads, trains, generates with its cache.

Needs `transformers` (the extra `hf`). Importing this module registers the classes with AutoConfig and
AutoModelForCausalLM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from nsa import checks
from nsa.cache import NSACache
from nsa.config import NSAConfig
from nsa.models.lm import ByteLM, LMConfig

NAME = "NSAForCausalLM"
NOT_A_TARGET = -100
"""The label that Hugging Face gives to positions without a loss."""
CACHE = next(x.name for x in fields(CausalLMOutputWithPast) if x.name in ("cache", "past_key_values"))
"""What this `transformers` calls a cache where it gives or takes one; earlier ones say `past_key_values`."""
TELLS_NEW = "next_sequence_length" in signature(GenerationMixin.prepare_inputs_for_generation).parameters
"""Whether `generate` says how many columns are new; earlier ones always give the mask of all, which tells it."""


class NSALanguageConfig(PretrainedConfig):
    """Sizes under Hugging Face's names; the sparse branches' under the paper's (see `nsa.NSAConfig`)."""

    model_type = "nsa_lm"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    attribute_map: ClassVar[dict[str, str]] = {"rope_theta": "rope_base"}  # else what every other model says is ignored

    def __init__(
        self, vocab_size: int = 256, hidden_size: int = 128, num_hidden_layers: int = 2, num_attention_heads: int = 4,
        num_key_value_heads: int = 2, head_dim: int = 32, v_head_dim: int = 32, intermediate_size: int = 256,
        l: int = 16, d: int = 8, l_sel: int = 32, n_sel: int = 4, w: int = 64, init_blocks: int = 1,  # noqa: E741
        local_blocks: int = 2, phi: str = "mlp", gate: str = "sigmoid", shared_kv: bool = False,
        rope_base: float = 10000.0, **others: Any,
    ) -> None:  # fmt: skip
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.intermediate_size = num_hidden_layers, intermediate_size
        self.num_attention_heads, self.num_key_value_heads = num_attention_heads, num_key_value_heads
        self.head_dim, self.v_head_dim = head_dim, v_head_dim
        self.l, self.d, self.l_sel, self.n_sel, self.w = l, d, l_sel, n_sel, w
        self.init_blocks, self.local_blocks = init_blocks, local_blocks
        self.phi, self.gate, self.shared_kv, self.rope_base = phi, gate, shared_kv, rope_base
        super().__init__(**others)

    def to_lm(self) -> LMConfig:
        """The same sizes as the library's own configuration."""
        sparse = NSAConfig(self.l, self.d, self.l_sel, self.n_sel, self.w, self.init_blocks, self.local_blocks)
        return LMConfig(
            dim=self.hidden_size, depth=self.num_hidden_layers, n_heads=self.num_attention_heads,
            n_kv_heads=self.num_key_value_heads, dk=self.head_dim, dv=self.v_head_dim, hidden=self.intermediate_size,
            vocabulary=self.vocab_size, nsa=sparse, phi=self.phi, gate=self.gate, shared_kv=self.shared_kv,
            rope_base=self.rope_base,
        )  # fmt: skip


class LayerCaches:
    """An `NSACache` for each layer, as `generate` expects of a cache.

    Attributes:
        columns: of input that were taken in, padding included.
    """

    is_compileable = is_croppable = False
    is_linear = (False,)
    """Nothing but attention: how many columns it has seen is known."""

    def __init__(self, layers: list[NSACache]) -> None:
        self.layers = layers
        self.columns = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns of input so far, padding included."""
        return self.columns

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequence i becomes a copy of sequence beam_idx[i]."""
        for layer in self.layers:
            layer.reorder(beam_idx)


class NSAForCausalLM(PreTrainedModel, GenerationMixin):
    """`nsa.models.ByteLM` with Hugging Face's interface."""

    config_class = NSALanguageConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("Block",)
    _is_stateful = True  # its cache cannot go back several tokens, as assisted decoding would need

    def __init__(self, config: NSALanguageConfig) -> None:
        super().__init__(config)
        self.model = ByteLM(config.to_lm())
        self.gradient_checkpointing = False
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Each layer knows how it begins."""
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding, which scores the outputs too."""
        return self.model.embed

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace it."""
        self.model.embed = value

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: Any = None, attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None, use_cache: bool | None = None, cache: Any = None,
        next_sequence_length: int | None = None, output_attentions: bool | None = None,
        output_hidden_states: bool | None = None, **_: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """What `generate` gives to `forward`: the columns that the cache has not seen. The mask is of all of them."""
        cache = past_key_values if cache is None else cache
        name, columns = "input_ids", input_ids
        if inputs_embeds is not None:  # of the prompt, before whatever tokens were generated
            name, columns = "inputs_embeds", torch.cat([inputs_embeds, self.model.embed(input_ids)], dim=1)
        given = columns.shape[1]
        if TELLS_NEW:
            first = 0 if next_sequence_length is None else given - next_sequence_length
        else:
            seen = 0 if cache is None else cache.get_seq_length()
            left_out = 0 if attention_mask is None else attention_mask.shape[1] - given  # seen in earlier calls
            first = max(0, seen - left_out)
        return {
            name: columns[:, first:],
            "attention_mask": attention_mask,
            "cache": cache,
            "use_cache": use_cache,
            "logits_to_keep": 1,
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, position_ids: Tensor | None = None,
        past_key_values: Any = None, inputs_embeds: Tensor | None = None, labels: Tensor | None = None,
        use_cache: bool | None = None, logits_to_keep: int | Tensor = 0, cu_seq_lens_q: Tensor | None = None,
        return_dict: bool | None = None, cache: Any = None, num_items_in_batch: int | Tensor | None = None,
        output_attentions: bool | None = None, output_hidden_states: bool | None = None, **_: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:  # fmt: skip
        """Logits of each token's successor. Positions count the tokens that are not padding.

        Args:
            input_ids: [B,T]; with a filled cache, the tokens that follow.
            attention_mask: [B,>=T], 0 for padding, anywhere; its last T columns are those of input_ids.
            position_ids: [B,T] or [1,T]. Where they begin at 0 again, another sequence begins, as
                `DataCollatorWithFlattening` packs them; other positions than these are refused.
            past_key_values: from an earlier output; an empty cache of another kind is replaced.
            inputs_embeds: [B,T,hidden_size] instead of input_ids.
            cu_seq_lens_q: the borders [N+1] of the sequences packed in a batch of one, which spare a look at
                position_ids on the device.
            labels: [B,T], -100 where there is no loss; shifted here. What follows padding is no target.
            use_cache: give a cache back; default: where one is given, or neither labels are nor gradients computed.
            logits_to_keep: the last so many positions only, or these [N]; 0 keeps all.
            return_dict: False gives a tuple.
            cache: past_key_values by its newer name.
            num_items_in_batch: what the sum of the tokens' losses is divided by, as a Trainer that accumulates
                gradients asks for; default: their number here.
            output_attentions, output_hidden_states: not to be had.

        Raises:
            ValueError: arguments that do not go together; the sentence says which.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{NAME}: give one of input_ids and inputs_embeds")
        if output_attentions or output_hidden_states:
            raise ValueError(f"{NAME}: it gives no attentions and no hidden states")
        name = "input_ids" if inputs_embeds is None else "inputs_embeds"
        tokens: Tensor = input_ids if inputs_embeds is None else inputs_embeds  # type: ignore[assignment]
        checks.axes(NAME, (name, tokens, "B,T" if inputs_embeds is None else "B,T,hidden_size"))
        packed, cache = cu_seq_lens_q, past_key_values if cache is None else cache
        _check_mask(attention_mask, tokens, packed)
        if packed is None and position_ids is not None:
            packed = _borders(position_ids, tokens, attention_mask, cache)
        if use_cache is None:
            use_cache = cache is not None or (labels is None and packed is None and not torch.is_grad_enabled())
        if use_cache and packed is not None:
            raise ValueError(f"{NAME}: packed sequences have no cache; give use_cache=False")
        if not use_cache and cache is not None and cache.get_seq_length() > 0:
            raise ValueError(f"{NAME}: with use_cache=False the tokens in the given cache would not be read")
        caches = self._caches(cache, len(tokens)) if use_cache else None
        logits = self._logits(tokens, attention_mask, caches) if packed is None else self._packed(tokens, packed)
        loss = None if labels is None else _loss(logits, labels, attention_mask, num_items_in_batch)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        output = CausalLMOutputWithPast(loss=loss, logits=logits[:, kept], **{CACHE: caches})
        return output if return_dict is not False else output.to_tuple()

    def _caches(self, given: Any, batch: int) -> LayerCaches:
        if isinstance(given, LayerCaches):
            return given
        if given is not None and not (hasattr(given, "get_seq_length") and given.get_seq_length() == 0):
            raise ValueError(f"{NAME}: past_key_values must come from this model, got {type(given).__name__}")
        return LayerCaches(self.model.new_caches(batch))

    @property
    def _checkpoint(self) -> Callable[..., Tensor] | None:
        """Calls a layer such that its inside is computed again for the gradient, where that is switched on."""
        wanted = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        return self._gradient_checkpointing_func if wanted else None

    def _packed(self, tokens: Tensor, cu_seqlens: Tensor) -> Tensor:
        """Logits [B,T,vocabulary] of rows that hold whole sequences, one after another."""
        row = tokens.flatten(0, 1)[None]
        return self.model(row, cu_seqlens=cu_seqlens, checkpoint=self._checkpoint).view(*tokens.shape[:2], -1)

    def _logits(self, tokens: Tensor, attention_mask: Tensor | None, caches: LayerCaches | None) -> Tensor:
        """Logits [B,T,vocabulary]; tokens move before padding for the model, and back after it."""
        columns = tokens.shape[1]
        layers = None if caches is None else caches.layers
        if caches is not None:
            caches.columns += columns
        real = None if attention_mask is None else attention_mask[:, -columns:].bool()
        if real is None or bool(real.all()):
            return self.model(tokens, layers, checkpoint=self._checkpoint)
        order = (~real).long().argsort(dim=1, stable=True)
        counts = None if caches is None else real.sum(1).tolist()  # asked of the device once for all layers
        entry = torch.arange(len(order), device=order.device)[:, None]
        logits = self.model(tokens[entry, order], layers, counts=counts, checkpoint=self._checkpoint)
        back = order.argsort(dim=1)[..., None].expand_as(logits)
        return logits.gather(1, back)


def _check_mask(mask: Tensor | None, tokens: Tensor, packed: Tensor | None) -> None:
    """Refuse what does not say of each token whether it is one, or says beside borders that some are none."""
    if mask is None:
        return
    checks.tensor(NAME, "attention_mask", mask)
    batch, columns = tokens.shape[:2]
    if mask.dim() != 2 or len(mask) != batch or mask.shape[1] < columns:
        expected = f"[B={batch},T={columns} or more]"
        raise ValueError(f"{NAME}: attention_mask must have the shape {expected}, got {list(mask.shape)}")
    if packed is not None and not bool(mask[:, -columns:].all()):
        raise ValueError(f"{NAME}: packed sequences have no padding; leave it out of cu_seq_lens_q and of the tokens")


def _borders(position_ids: Tensor, tokens: Tensor, attention_mask: Tensor | None, cache: Any) -> Tensor | None:
    """Borders of the sequences in the rows of tokens, one after another; None where each row is one.

    Raises:
        ValueError: positions that mean something else.
    """
    batch, columns = tokens.shape[:2]
    checks.tensor(NAME, "position_ids", position_ids)
    if list(position_ids.shape) not in ([batch, columns], [1, columns], [columns]):
        expected = f"[B={batch},T={columns}] or [1,T]"
        raise ValueError(f"{NAME}: position_ids must have the shape {expected}, got {list(position_ids.shape)}")
    given = position_ids.expand(batch, columns)
    if cache is not None or (attention_mask is not None and not bool(attention_mask.all())):
        mask = tokens.new_ones(batch, columns) if attention_mask is None else attention_mask
        seen = 0 if attention_mask is not None or cache is None else cache.get_seq_length()
        expected = (mask.long().cumsum(1) - 1 + seen)[:, -columns:]
        if bool(((given == expected) | (mask[:, -columns:] == 0)).all()):
            return None
        raise ValueError(f"{NAME}: position_ids must count the tokens that are not padding, beside a mask or a cache")
    follows = given[:, 1:] == given[:, :-1] + 1
    begins = torch.cat([given[:, :1] == 0, given[:, 1:] == 0], dim=1)
    if not bool(begins[:, 0].all() & (follows | begins[:, 1:]).all()):
        raise ValueError(f"{NAME}: position_ids must count from 0 in each sequence")
    borders = begins.flatten().nonzero().flatten()
    return None if len(borders) == batch else torch.cat([borders, borders.new_tensor([batch * columns])])


def _loss(logits: Tensor, labels: Tensor, mask: Tensor | None, items: int | Tensor | None) -> Tensor:
    """Cross-entropy of each token's successor, of padding's none: the mean, or the sum divided by `items`."""
    targets = labels[:, 1:]
    if mask is not None:  # padding before a text stands behind it in the model, and has seen it
        targets = targets.masked_fill(mask[:, -labels.shape[1] : -1] == 0, NOT_A_TARGET)
    pairs = logits[:, :-1].flatten(0, 1).float(), targets.flatten()
    loss = F.cross_entropy(*pairs, ignore_index=NOT_A_TARGET, reduction="mean" if items is None else "sum")
    return loss if items is None else loss / items


AutoConfig.register(NSALanguageConfig.model_type, NSALanguageConfig)
AutoModelForCausalLM.register(NSALanguageConfig, NSAForCausalLM)
