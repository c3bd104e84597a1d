"""The machine that jobs run on: its slots, what it is made of, and how much of it is in use."""
