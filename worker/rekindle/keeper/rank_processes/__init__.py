"""The ranks of the running attempt: their processes, what they report, and how they end."""
