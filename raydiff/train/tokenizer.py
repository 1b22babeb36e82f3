"""Trains the summariser's byte-level BPE: cased, lossless, four special tokens that no text encodes
into.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

PAD, BEGIN, END, MASK = "<|pad|>", "<|doc|>", "<|end|>", "<|mask|>"
PAD_ID, BEGIN_ID, END_ID, MASK_ID = range(4)
VOCAB_SIZE = 8192
SMALL_VOCAB_SIZE = 2048
"""Of the tiny trained checkpoints, which read and write lower case."""
CONTEXT_TOKENS = 512


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = VOCAB_SIZE, lower: bool = False
) -> Tokenizer:
    """A BPE over bytes trained on `texts`; encoding adds `<|doc|>` before and `<|end|>` after
    unless told not to. `lower` drops the case of all text: it halves the words a small model
    must tell apart.
    """
    tokenizer = Tokenizer(models.BPE())
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BEGIN, END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, BEGIN_ID), (END, END_ID)]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the files that `AutoTokenizer.from_pretrained(folder)` reads."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        cls_token=BEGIN,
        sep_token=END,
        eos_token=END,
        mask_token=MASK,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(str(folder))
