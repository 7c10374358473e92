"""What of torch is private, or depends on the caller's surroundings."""
