"""Training of the bundled summariser: corpus, tokenizer, objective, trainer, evaluation."""
