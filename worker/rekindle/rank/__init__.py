"""The wrapper around the user's script inside every rank: it changes nothing that the script can observe."""
