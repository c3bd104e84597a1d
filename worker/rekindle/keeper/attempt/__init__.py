"""One launch of torchrun: its plan, its processes, watching them, and shutting them down."""
