"""The frozen computational graph, and where the samples of a batch lie in its values."""
