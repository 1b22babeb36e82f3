"""The mathematics of denoising: pure functions over tensors, no model and no device of their own."""
