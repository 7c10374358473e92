"""What the command line does, independent of it: certifying many samples, the report, reading
models and data."""
