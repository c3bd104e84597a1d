"""What a job may touch: its UNIX user, its sandbox, its limits. Everything is off unless a setting turns it on."""
