"""Linear functions of a node's elements: the matrix A of the paper, in the forms that save work."""
