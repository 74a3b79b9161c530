"""The Hugging Face model: saves, loads, trains, generates with its cache (needs the extra `hf`)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed (the extra hf)")

from nsa.integrations.huggingface import CACHE, LayerCaches, NSAForCausalLM, NSALanguageConfig  # noqa: E402

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "v_head_dim": 6, "intermediate_size": 32, "l": 8, "d": 4, "l_sel": 8, "n_sel": 4, "w": 13,
}  # fmt: skip
GREEDY = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}


def model(**changes: object) -> NSAForCausalLM:
    torch.manual_seed(0)
    return NSAForCausalLM(NSALanguageConfig(**{**SIZES, **changes})).double().eval()


def prompt(length: int = 30, batch: int = 2) -> torch.Tensor:
    return torch.randint(1, 256, (batch, length), generator=torch.Generator().manual_seed(1))


def test_the_base_of_rotary_positions_has_the_name_that_other_models_give_it(tmp_path: Path) -> None:
    lm = model(rope_theta=5e5)
    assert lm.config.rope_base == lm.model.blocks[0].attention.rope_base == 5e5
    lm.config.save_pretrained(tmp_path)
    assert NSALanguageConfig.from_pretrained(tmp_path).rope_theta == 5e5


def test_it_generates_the_same_with_and_without_its_cache() -> None:
    lm, text = model(), prompt()
    with_cache, without = (lm.generate(text, use_cache=use, **GREEDY) for use in (True, False))
    assert torch.equal(with_cache, without) and with_cache.shape == (2, 50)
    output = lm.generate(text, return_dict_in_generate=True, **GREEDY)
    assert isinstance(output.past_key_values, LayerCaches), "the sparse cache must be the one that was used"
    assert output.past_key_values.layers[0].lengths.tolist() == [49, 49]


@pytest.mark.parametrize("given", ["tokens", "embeddings"])
def test_each_token_is_computed_once(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, text, widths = model(), prompt(), []
    forward = lm.model.forward
    monkeypatch.setattr(
        lm.model, "forward", lambda x, *args, **how: (widths.append(x.shape[1]), forward(x, *args, **how))[1]
    )
    lm.generate(**({"input_ids": text} if given == "tokens" else {"inputs_embeds": lm.model.embed(text)}), **GREEDY)
    assert widths == [30, *[1] * 19]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("only_new", [False, True])
def test_a_text_goes_on_with_the_cache_of_an_earlier_output(only_new: bool, padding: int) -> None:
    lm, text, mask = model(), prompt(), torch.ones(2, 30, dtype=torch.int64)
    mask[1, :padding] = 0
    expected = lm.generate(text, attention_mask=mask, **GREEDY)[:, 30:]
    with torch.no_grad():
        seen = lm(text[:, :12], attention_mask=mask[:, :12], use_cache=True)[CACHE]
    rest = text[:, 12:] if only_new else text
    assert torch.equal(lm.generate(rest, attention_mask=mask, **{CACHE: seen}, **GREEDY)[:, rest.shape[1] :], expected)


@pytest.mark.parametrize("padding", [0, 3])
def test_a_prompt_may_be_taken_in_by_chunks(padding: int) -> None:
    lm, text, mask = model(), prompt(), torch.ones(2, 30, dtype=torch.int64)
    mask[1, :padding] = 0
    found = [lm.generate(text, attention_mask=mask, prefill_chunk_size=size, **GREEDY) for size in (None, 7, 30)]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("wanted", ["output_attentions", "output_hidden_states"])
def test_what_it_does_not_give_is_refused_by_generate_too(wanted: str) -> None:
    with pytest.raises(ValueError, match="it gives no attentions and no hidden states"):
        model().generate(prompt(), return_dict_in_generate=True, **{wanted: True}, **GREEDY)


@torch.no_grad()
def test_texts_go_on_from_copies_of_one_prompts_cache() -> None:
    lm, text = model(), prompt()
    held = lm(text[:, :20]).past_key_values
    for _ in range(2):
        found = lm(text[:, 20:], past_key_values=copy.deepcopy(held)).logits
        torch.testing.assert_close(found, lm(text).logits[:, 20:], rtol=0, atol=1e-12)


def test_a_cache_that_is_given_is_read_whoever_asks_for_gradients() -> None:
    """It was left out where gradients were on: the text then went on from nothing."""
    lm, text = model(), prompt()
    expected = lm(text).logits[:, 20:]
    for more in ({}, {"labels": text[:, 20:]}):
        held = lm(text[:, :20], use_cache=True)[CACHE]
        found = lm(text[:, 20:], **{CACHE: held}, **more).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="with use_cache=False the tokens in the given cache would not be read"):
        lm(text[:, 20:], **{CACHE: held}, use_cache=False)


def test_padded_prompts_generate_as_apart() -> None:
    lm, text = model(), prompt()
    mask = torch.ones_like(text)
    mask[1, :17] = 0
    padded = lm.generate(text * mask, attention_mask=mask, **GREEDY)
    assert torch.equal(padded[:1], lm.generate(text[:1], **GREEDY))
    assert torch.equal(padded[1:, 17:], lm.generate(text[1:, 17:], **GREEDY))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_logits(side: str) -> None:
    lm, text = model(), prompt()
    real = slice(9, None) if side == "left" else slice(None, -9)
    mask = torch.zeros_like(text)
    mask[:, real] = 1
    for use_cache in (True, False):
        found = lm(text, attention_mask=mask, use_cache=use_cache).logits[:, real]
        torch.testing.assert_close(found, lm(text[:, real]).logits, rtol=0, atol=1e-11)


def test_beam_search_reorders_the_cache() -> None:
    lm, text = model(), prompt()
    found = [lm.generate(text, num_beams=3, use_cache=use, **GREEDY) for use in (True, False)]
    assert torch.equal(*found)


def test_it_saves_and_loads(tmp_path: Path) -> None:
    lm, text = model(phi="weighted", gate="softmax"), prompt()
    lm.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert isinstance(loaded, NSAForCausalLM) and loaded.config.to_lm() == lm.config.to_lm()
    assert torch.equal(loaded(text).logits, lm(text).logits)
    assert torch.equal(loaded.generate(text, **GREEDY), lm.generate(text, **GREEDY))


def test_a_missing_weight_begins_anew(tmp_path: Path) -> None:
    """A checkpoint that lacks a compression loads; what it lacks begins as the mean."""
    lm = model(phi="mean")
    lm.save_pretrained(tmp_path)
    config = NSALanguageConfig.from_pretrained(tmp_path)
    config.phi = "weighted"
    loaded = NSAForCausalLM.from_pretrained(tmp_path, config=config, dtype=torch.float64).eval()
    torch.testing.assert_close(loaded(prompt()).logits, lm(prompt()).logits)


def test_it_trains_from_labels() -> None:
    lm, text = model().train(), prompt()
    labels = text.clone()
    labels[:, :10] = -100
    output = lm(text, labels=labels)
    logits = output.logits[:, 9:-1].flatten(0, 1)
    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(logits.float(), text[:, 10:].flatten()))
    output.loss.backward()
    assert not [name for name, p in lm.named_parameters() if p.grad is None]
    assert output.past_key_values is None


@pytest.mark.parametrize("real", [slice(9, None), slice(None, -9)], ids=["padded before", "padded behind"])
def test_padding_changes_no_loss(real: slice) -> None:
    lm, text = model().train(), prompt()
    mask = torch.zeros_like(text)
    mask[:, real] = 1
    found = lm(text, attention_mask=mask, labels=text.masked_fill(mask == 0, -100)).loss
    torch.testing.assert_close(found, lm(text[:, real], labels=text[:, real]).loss)


def test_a_trainer_trains_and_judges_it(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate, which a Trainer needs, is not installed")
    texts = [{"input_ids": x, "labels": x} for x in prompt(batch=6).tolist()]
    how = {"max_steps": 2, "per_device_train_batch_size": 3, "gradient_checkpointing": True, "learning_rate": 0.1}
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    trainer = transformers.Trainer(
        model().float(), transformers.TrainingArguments(str(tmp_path), **how, **quiet),
        train_dataset=texts, eval_dataset=texts, data_collator=transformers.DataCollatorWithFlattening(),
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.1


def test_logits_to_keep_and_tuples() -> None:
    lm, text = model(), prompt()
    with torch.no_grad():
        whole = lm(text)
        assert torch.equal(lm(text, logits_to_keep=2).logits, whole.logits[:, -2:])
        assert torch.equal(lm(text, logits_to_keep=torch.tensor([3, 7])).logits, whole.logits[:, [3, 7]])
        logits, caches = lm(text, return_dict=False)
    assert torch.equal(logits, whole.logits) and caches.get_seq_length() == 30


def test_accumulated_gradients_are_those_of_one_batch() -> None:
    """As a Trainer asks for them, which does not divide by the number of steps itself."""
    lm, text = model().train(), prompt()
    labels = text.masked_fill(torch.arange(30) > torch.tensor([[9], [25]]), -100)
    whole = lm(text, labels=labels).loss
    items = labels[:, 1:].ne(-100).sum()
    parts = [lm(text[i : i + 1], labels=labels[i : i + 1], num_items_in_batch=items).loss for i in range(2)]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("shape", [(2, 29), (1, 30), (2, 1, 30, 30)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"attention_mask must have the shape \[B=2,T=30 or more\], got"):
        model()(prompt(), attention_mask=torch.ones(shape))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"input_ids": [[1, 2]]}, "input_ids must be a tensor, got list"),
        ({"input_ids": prompt()[0]}, r"input_ids must have the shape \[B,T\], got \[30\]"),
        ({"attention_mask": [[1] * 30] * 2}, "attention_mask must be a tensor, got list"),
        (
            {"position_ids": torch.arange(29)[None]},
            r"position_ids must have the shape \[B=2,T=30\] or \[1,T\], got \[1, 29\]",
        ),
        ({"output_hidden_states": True}, "no attentions and no hidden states"),
        (
            {"cu_seq_lens_q": torch.tensor([0, 9, 60]), "attention_mask": torch.arange(30).expand(2, -1) > 2},
            "packed sequences have no padding",
        ),
    ],
)
def test_what_does_not_go_together_is_a_sentence(given: dict[str, object], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"NSAForCausalLM: .*{sentence}"):
        model()(**{"input_ids": prompt(), **given})


def test_a_foreign_cache_is_refused() -> None:
    lm, text = model(), prompt()
    foreign = transformers.DynamicCache()
    foreign.update(torch.zeros(2, 2, 3, 8), torch.zeros(2, 2, 3, 8), 0)
    with torch.no_grad(), pytest.raises(ValueError, match="must come from this model, got DynamicCache"):
        lm(text, past_key_values=foreign, use_cache=True)


@pytest.mark.parametrize("borders", [False, True])
def test_packed_sequences_are_as_apart(borders: bool) -> None:
    lm, text = model(), prompt()
    lengths = (11, 1, 18)
    apart = torch.cat([lm(piece).logits for piece in text[:1].split(lengths, 1)], 1)
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    where = {"cu_seq_lens_q": torch.tensor([0, 11, 12, 30])} if borders else {"position_ids": positions}
    torch.testing.assert_close(lm(text[:1], **where).logits, apart, rtol=0, atol=1e-11)
    if not borders:  # in rows of a batch, too
        both = lm(text, position_ids=torch.cat([positions, torch.arange(30)[None]]))
        torch.testing.assert_close(both.logits, torch.cat([apart, lm(text[1:]).logits]), rtol=0, atol=1e-11)


def test_positions_that_count_the_tokens_change_nothing() -> None:
    lm, text = model(), prompt()
    mask = torch.ones_like(text)
    mask[1, :17] = 0
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        found = lm(text, attention_mask=mask, position_ids=counted, use_cache=True)
        assert torch.equal(found.logits, lm(text, attention_mask=mask).logits)
        assert torch.equal(lm(text, position_ids=torch.arange(30)[None]).logits, lm(text).logits)
        one = lm(text, use_cache=True)
        step = lm(text[:, :1], past_key_values=one.past_key_values, position_ids=torch.full((2, 1), 30), use_cache=True)
    torch.testing.assert_close(step.logits, lm(torch.cat([text, text[:, :1]], 1)).logits[:, -1:], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("positions", "others", "words"),
    [
        (torch.arange(30) * 2, {}, "must count from 0 in each sequence"),
        (torch.arange(30) + 1, {}, "must count from 0 in each sequence"),
        (torch.arange(30), {"attention_mask": torch.arange(30).expand(2, 30) > 8}, "that are not padding"),
        (torch.arange(30) % 10, {"use_cache": True}, "packed sequences have no cache"),
    ],
)
def test_other_positions_are_refused(positions: torch.Tensor, others: dict[str, object], words: str) -> None:
    with torch.no_grad(), pytest.raises(ValueError, match=words):
        model()(prompt(), position_ids=positions[None], **others)


def test_embeddings_stand_for_tokens() -> None:
    lm, text = model(), prompt()
    x = lm.get_input_embeddings()(text)
    assert torch.equal(lm(inputs_embeds=x).logits, lm(text).logits)
    mask = torch.ones_like(text)
    mask[1, :17] = 0
    for use_cache in (True, False):
        options = {"attention_mask": mask, "use_cache": use_cache, **GREEDY}
        assert torch.equal(lm.generate(inputs_embeds=x, **options), lm.generate(text, **options)[:, 30:])
    for wrong in ({}, {"input_ids": text, "inputs_embeds": x}):
        with pytest.raises(ValueError, match="give one of input_ids and inputs_embeds"):
            lm(**wrong)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_change_no_gradient(reentrant: bool) -> None:
    lm, text = model().train(), prompt()
    lm(text, labels=text).loss.backward()
    expected = {name: p.grad.clone() for name, p in lm.named_parameters()}
    lm.zero_grad()
    lm.gradient_checkpointing_enable({"use_reentrant": reentrant})
    lm(text[:1], position_ids=torch.arange(30)[None] % 10, labels=text[:1]).loss.backward()
    lm.zero_grad()
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.numel()), x)[1], lambda x: x):
        loss = lm(text, labels=text).loss
    inside = sum(kept)
    loss.backward()
    assert all(torch.equal(p.grad, expected[name]) for name, p in lm.named_parameters())
    lm.gradient_checkpointing_disable()
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.numel()), x)[1], lambda x: x):
        lm(text, labels=text)
    assert inside < sum(kept) / 2
