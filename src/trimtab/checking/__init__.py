"""What an environment promises, and whether it keeps it, before anything is trained on it."""
