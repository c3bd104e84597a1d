"""A user's code on its way into a run directory: copied, uploaded as a bundle, or fetched by git."""
