"""What is asked of an output: margins, specification matrices, single elements."""
