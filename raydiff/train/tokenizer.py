"""Trains the summariser's byte-level BPE: cased, lossless, four special tokens that no text encodes
into.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, BEGIN, END, MASK = "<|pad|>", "<|doc|>", "<|end|>", "<|mask|>"
PAD_ID, BEGIN_ID, END_ID, MASK_ID = range(4)
VOCAB_SIZE = 8192
CONTEXT_TOKENS = 512


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A BPE over bytes trained on `texts`; encoding adds `<|doc|>` before and `<|end|>` after
    unless told not to.
    """
    tokenizer = Tokenizer(models.BPE())
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
