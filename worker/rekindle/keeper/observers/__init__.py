"""What the keeper records about an attempt while it runs: files, processor and GPU use, TensorBoard scalars, output."""
