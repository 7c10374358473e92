"""Files that are written whole or not at all, and digests of what is in them."""
