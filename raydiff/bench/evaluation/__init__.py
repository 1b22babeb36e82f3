"""Evaluation: what decoding settings cost and keep of quality, over a sample of a corpus."""
