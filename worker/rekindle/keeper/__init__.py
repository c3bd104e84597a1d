"""The keeper: one process per job that outlives the server and turns the job into attempts of torchrun."""
