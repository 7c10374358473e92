"""Several passes over memory in one, with hand-written gradients."""
