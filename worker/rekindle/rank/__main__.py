"""What torchrun starts as a rank: as a file in a fork of the warm agent, or with ``-m`` in a fresh interpreter."""

import os

from rekindle.rank.wrapper import main

main()
if __spec__ is not None:  # with ``-m``: end as a fork does; C++ would free torch's debug server after Python
    os._exit(0)
