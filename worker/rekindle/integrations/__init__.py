"""One line each for Lightning, Hugging Face Trainer and Accelerate: import the module of the framework in use."""
