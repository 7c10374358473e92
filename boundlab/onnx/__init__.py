"""ONNX files as modules: reading.py reads a file, folding.py computes what does not depend on the
inputs, batching.py frees the batch size, model.py is the module; table.py and rows/ hold a row for
each operator."""

from boundlab.onnx.model import OnnxModel, load_onnx

__all__ = ["OnnxModel", "load_onnx"]
