"""How an attempt's torchrun is launched: from a warm keeper that has imported torch, or in a fresh interpreter."""
