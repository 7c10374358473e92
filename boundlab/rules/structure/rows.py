"""Operators of which one of the shared forms says all, in rows."""

from __future__ import annotations

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.kernels.moments import moments
from boundlab.rules.casts import cut_off, rounded, rounded_in_place
from boundlab.rules.elementwise import softsign, tanhshrink
from boundlab.rules.registry import aten, clean, smooth_abs, within
from boundlab.rules.replaced import nan_to_num_of_inputs
from boundlab.rules.softmax import softmax_of_numbers
from boundlab.rules.structure.forms import (
    along,
    beside,
    broadcast,
    constant,
    pointwise,
    trailing,
    whole,
)
from boundlab.rules.structure.site import Site
from boundlab.rules.structure.table import structure

structure(
    aten._to_copy, aten.to, aten.dropout, aten.feature_dropout, aten.alpha_dropout,
    aten.feature_alpha_dropout, aten.contiguous, aten.alias,
    aten.lift_fresh_copy, aten.detach, aten.log_sigmoid, aten.log_sigmoid_forward, aten.hardswish,
    aten.where, aten.rsub, aten.add, aten.sub,
    aten.mul, aten.multiply, aten.greater, aten.greater_equal, aten.less, aten.less_equal,
    aten.__and__, aten.__or__, aten.__xor__, aten.fix,
    aten.masked_fill, aten.expand_as, aten.broadcast_tensors, within, smooth_abs,
    softsign, tanhshrink, rounded, rounded_in_place, cut_off, aten.special_ndtr,
    aten.fake_quantize_per_tensor_affine, nan_to_num_of_inputs,
)(pointwise)  # fmt: skip


@structure(aten.type_as, aten.expand, aten.broadcast_to, aten.fill, aten.bucketize)
def first_pointwise(site: Site) -> Layout | None:
    """Pointwise in the first argument; of the others only the shape or the type counts, or no
    samples are in them."""
    if site.node.op in (aten.fill.Tensor, aten.bucketize.Tensor):
        site.plain(*site.node.args[1:])
    return site.agreed([broadcast(site, site.node.args[0].name)])


@structure(aten.prelu)
def _prelu(site: Site) -> Layout | None:
    site.plain(site["weight"])
    return site.layout(site["self"])


@structure(aten.fake_quantize_per_channel_affine)
def _per_channel(site: Site) -> Layout | None:
    """The samples may lie anywhere but in the channels: these have steps of their own."""
    x = site["self"]
    site.plain(site["scale"], site["zero_point"])
    return beside(site, x, site.dims(x, site["axis"]))


structure(
    aten._softmax, softmax_of_numbers, aten.softmax, aten._log_softmax, aten.log_softmax,
    aten.cumsum, aten.cumprod, aten.cummax, aten.cummin, aten.logcumsumexp,
    aten.sort, aten.argsort, aten.topk, aten.diff, aten.split.sizes, aten.split_with_sizes,
    aten.chunk, aten.tensor_split, aten.index_fill,
)(along("dim"))  # fmt: skip
structure(aten.flip, aten.rot90)(along("dims"))
structure(aten.roll)(along("dims", whole=([], ())))
structure(aten.unfold)(along("dimension"))
structure(aten.select, aten.unbind)(along("dim", kept=False))
structure(
    aten.sum.dim_IntList, aten.mean.dim, aten.amax, aten.amin, aten.argmax, aten.argmin,
    aten.logsumexp, aten.var.dim, aten.var.correction,
    aten.std.dim, aten.std.correction, aten.prod.dim_int, aten.max.dim, aten.min.dim,
    aten.median.dim, aten.nanmedian.dim, aten.mode,
    aten.kthvalue, aten.any.dim, aten.any.dims, aten.all.dim, aten.all.dims,
    aten.linalg_vector_norm, aten.nansum, aten.aminmax,
)(along("dim", whole=(None, [], ())))  # fmt: skip
structure(aten.count_nonzero.dim_IntList)(along("dim", kept=False))

structure(
    aten.sum.default, aten.mean.default, aten.any.default, aten.all.default, aten.max.default,
    aten.min.default, aten.prod.default, aten.trace, aten.diag, aten.median.default,
    aten.count_nonzero.default, aten.take, aten.masked_select, aten.nonzero, aten.repeat_interleave,
    moments,
)(whole)  # fmt: skip

structure(aten.tril, aten.triu, aten.linalg_inv_ex)(trailing(2))
structure(aten.pixel_shuffle, aten.pixel_unshuffle)(trailing(3))
# pooling, padding and resizing
structure(
    aten.avg_pool1d, aten.adaptive_avg_pool1d, aten.max_pool1d,
    aten.reflection_pad1d, aten.replication_pad1d,
    aten.upsample_nearest1d, aten._upsample_nearest_exact1d, aten.upsample_linear1d,
)(trailing(1))  # fmt: skip
structure(
    aten.avg_pool2d, aten.adaptive_avg_pool2d, aten._adaptive_avg_pool2d, aten.max_pool2d,
    aten.reflection_pad2d, aten.replication_pad2d,
    aten.upsample_nearest2d, aten._upsample_nearest_exact2d,
    aten.upsample_bilinear2d, aten.upsample_bicubic2d,
)(trailing(2))  # fmt: skip
structure(
    aten.avg_pool3d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool3d, aten.max_pool3d,
    aten.reflection_pad3d, aten.replication_pad3d,
    aten.upsample_nearest3d, aten._upsample_nearest_exact3d, aten.upsample_trilinear3d,
)(trailing(3))  # fmt: skip


@structure(aten.diag_embed)
def _diag_embed(site: Site) -> Layout | None:
    """Into the last two dimensions, of other places nothing is said."""
    if (site["dim1"], site["dim2"]) != (-2, -1):
        return whole(site)
    return trailing(1)(site)


@structure(aten.im2col, aten.col2im)
def _blocks(site: Site) -> Layout | None:
    """(samples, channels and places) to (samples, others): only dimension 0 is parallel."""
    return beside(site, site["self"], range(1, len(site.shape(site["self"]))))


@structure(aten.grid_sampler_2d, aten.grid_sampler_3d)
def _warp(site: Site) -> Layout | None:
    """(samples, channels, *size) by a grid, (samples, *other size, dims): each channel of a sample
    by the sample's own grid."""
    x, grid = site["input"], site["grid"]
    dims = len(site.shape(x))
    return site.agreed([beside(site, x, range(2, dims)), beside(site, grid, range(1, dims))])


@structure(aten.view_as_real)
def _view_as_real(site: Site) -> Layout | None:
    """With a new dimension behind all others."""
    return site.layout(site["self"])


@structure(aten.flipud)
def _rows(site: Site) -> Layout | None:
    return beside(site, site["self"], (0,))


@structure(aten.fliplr, aten.channel_shuffle)
def _columns(site: Site) -> Layout | None:
    return beside(site, site["self"], (1,))


@structure(aten.constant_pad_nd, aten.pad, aten._pad_circular)
def _pad(site: Site) -> Layout | None:
    """Pairs of widths for the last dimensions, the last one first."""
    x, widths = site["self"], site["pad"]
    dims = len(site.shape(x))
    padded = [i // 2 for i, width in enumerate(widths) if isinstance(width, Ref) or width != 0]
    return beside(site, x, [dims - 1 - place for place in padded])


structure(aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like)(first_pointwise)
structure(aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty)(constant)
structure(clean)(lambda site: None)
