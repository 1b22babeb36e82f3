"""The mathematics of denoising: pure functions over tensors, without model or device."""
