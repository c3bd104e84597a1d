"""Reports its steps and takes its time where it may: a slow first step, a long evaluation, a long save."""

import time

import rekindle


def main():
    rekindle.report(phase="train", step=0)
    time.sleep(4)
    for step in range(1, 4):
        rekindle.report(step=step)
        time.sleep(0.2)
    for phase in ("evaluate", "snapshot"):
        rekindle.report(phase=phase)
        time.sleep(4)
        rekindle.report(phase="train")
    for step in range(4, 7):
        rekindle.report(step=step)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
