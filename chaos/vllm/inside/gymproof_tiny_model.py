"""`python gymproof_tiny_model.py FOLDER`: a Llama of 117 thousand random weights with tokenizer and chat template.

Nothing is downloaded. The same folder comes out of every run, so replicas of it have the same weights. What it says is
noise, but sampled noise of any length, which is what a chaos run needs of it.
"""

import os
import random
import sys
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import tokenizers
import torch
import transformers

_CONTEXT = 4096  # tokens
_ENDS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_TURNS = ["<|im_start|>", "<|im_end|>"]
_TEXT = (
    "the reward of a long rollout is found at its end so keep every turn short and let it be known that you have been "
    "there when an engine died for it will not say so itself"
)
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> Any:
    """Byte-level BPE, trained on the spot: every text can be encoded."""
    words, draws = _TEXT.split(), random.Random(0)  # noqa: S311 - reproducible, not secret
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=[*_ENDS.values(), *_TURNS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join(draws.choices(words, k=20)) for _ in range(300)), trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        additional_special_tokens=_TURNS,
        model_max_length=_CONTEXT,
        **_ENDS,
    )
    fast.chat_template = _TEMPLATE
    return fast


def make_model(tokenizer: Any) -> Any:
    """Two layers; the vocabulary is exactly the tokenizer's, so that every sampled id has a text."""
    torch.manual_seed(0)
    ends = {f"{name}_id": tokenizer.convert_tokens_to_ids(token) for name, token in _ENDS.items()}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        **ends,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.float32)
    model.generation_config = transformers.GenerationConfig(**ends)
    return model


def main() -> None:
    """Write model and tokenizer into the folder that the command line names."""
    folder = sys.argv[1]
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
