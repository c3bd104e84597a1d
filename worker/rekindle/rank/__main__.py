"""What torchrun starts as a rank: as a file in a fork of the warm agent, or with ``-m`` in a fresh interpreter."""

from rekindle.rank.wrapper import main

main()
