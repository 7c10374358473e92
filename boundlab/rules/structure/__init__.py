"""Where an operator leaves the samples of a batch: for each operator a function from the layouts of
its arguments to that of its result, or a refusal if the operator lets samples meet.

A fact holds for every size of the batch and every value of the arguments, so that a layout that is
found here is a proof that samples do not interact. It rests on one notion: an operator is
*parallel* along a dimension if index i of the result there depends on index i of the arguments
alone. Samples stay apart exactly where the operator is parallel along the dimension that carries
them; along all others it *acts*.
"""

from boundlab.rules.structure import indexing, parts, products, rows, shapes
from boundlab.rules.structure.forms import pointwise, samples_first
from boundlab.rules.structure.shapes import reshape
from boundlab.rules.structure.site import Meets, Site, Structure, Unknown
from boundlab.rules.structure.table import find_structure

__all__ = [
    "Meets",
    "Site",
    "Structure",
    "Unknown",
    "find_structure",
    "indexing",
    "parts",
    "pointwise",
    "products",
    "reshape",
    "rows",
    "samples_first",
    "shapes",
]
