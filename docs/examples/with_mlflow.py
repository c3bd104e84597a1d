"""MLflow: its runs get their ids from the store, so the script saves the id with its other files."""

import time
from pathlib import Path

import mlflow
import torch

SNAPSHOT, RUN_ID, STEPS = Path("snapshot.pt"), Path("mlflow-run-id"), 60


def main() -> None:
    first = torch.load(SNAPSHOT, weights_only=True)["steps"] if SNAPSHOT.exists() else 0
    with mlflow.start_run(run_id=RUN_ID.read_text() if RUN_ID.exists() else None) as run:
        RUN_ID.write_text(run.info.run_id)
        for step in range(first, STEPS):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
            torch.save({"steps": step + 1}, SNAPSHOT.with_suffix(".tmp"))
            SNAPSHOT.with_suffix(".tmp").replace(SNAPSHOT)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
