"""What `rekindle doctor` looks at: each check looks once and returns findings, and prints nothing."""
