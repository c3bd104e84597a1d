"""What Hydra does around a script: overrides, a directory by date and time for every start, logging into it."""

import functools
import logging
import os
import sys
from datetime import datetime
from types import SimpleNamespace


def main(defaults):
    def decorate(function):
        @functools.wraps(function)
        def run():
            overrides = dict(argument.split("=", 1) for argument in sys.argv[1:])
            directory = overrides.pop("hydra.run.dir", datetime.now().strftime("outputs/%Y-%m-%d/%H-%M-%S"))
            config = {key: type(value)(overrides.get(key, value)) for key, value in defaults.items()}
            os.makedirs(os.path.join(directory, ".hydra"), exist_ok=True)
            os.chdir(directory)
            with open(".hydra/config.yaml", "w") as file:
                file.writelines(f"{key}: {value}\n" for key, value in config.items())
            handlers = [logging.StreamHandler(), logging.FileHandler("train.log")]
            form = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"
            logging.basicConfig(level=logging.INFO, format=form, handlers=handlers)
            function(SimpleNamespace(**config))

        return run

    return decorate
